package inspect

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

func TestRepairUTF8(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{"aé漢🜕", "aé漢🜕"},
		{"a\xffb", "a?b"},
		{"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", "a???b?c??d"}, // the Unicode standard's example, table 3-8
		{"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", "????????A"},                  // table 3-9
		{"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", "????????A"},                  // table 3-10
		{"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "?????A??B"},                  // table 3-11
		{"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "????A"},                      // table 3-12
		{"\xe2\x82", "?"},
		{"\xf0\x9f\x91", "?"},
		{"\uFFFD\xff", "??"},
	} {
		want := strings.ReplaceAll(c.want, "?", "\uFFFD")
		if got := repairUTF8(c.text); got != want {
			t.Errorf("%q gives %q, want %q", c.text, got, want)
		}
	}
}

// TestNormalizeByHand compares with package norm on texts short enough for it.
func TestNormalizeByHand(t *testing.T) {
	forms := []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD}
	var alphabet []rune
	for r := rune(0x20); r < 0x30000; r++ {
		p := norm.NFKD.PropertiesString(string(r))
		if utf8.ValidRune(r) && (p.CCC() != 0 || p.Decomposition() != nil || r < 0x180 || r >= 0x1100 && r < 0x1200) {
			alphabet = append(alphabet, r)
		}
	}
	random := rand.New(rand.NewPCG(7, 8))
	for range 20000 {
		runes := make([]rune, 1+random.IntN(7))
		for i := range runes {
			runes[i] = alphabet[random.IntN(len(alphabet))]
		}
		text := string(runes)
		for _, form := range forms {
			if got, want := normalizeByHand(form, text), form.String(text); got != want {
				t.Fatalf("form %d of %+q is %+q, want %+q", form, text, got, want)
			}
		}
	}
}

func TestNormalizeLongRuns(t *testing.T) {
	for _, form := range []norm.Form{norm.NFC, norm.NFD, norm.NFKC, norm.NFKD} {
		for _, n := range []int{1, 5, 29, 30, 31, 32, 33, 100} {
			got := normalizeForm(form, "x"+strings.Repeat("\u0344", n)+"y")
			if want := "x" + strings.Repeat("\u0308\u0301", n) + "y"; got != want {
				if form == norm.NFC || form == norm.NFKC {
					want = "\u1e8d\u0301" + strings.Repeat("\u0308\u0301", n-1) + "y"
				}
				if got != want {
					t.Errorf("form %d, %d marks: %+q", form, n, got)
				}
			}
		}
	}
}

// TestLowercase: character by character, as Rust's char::to_lowercase has it.
func TestLowercase(t *testing.T) {
	for in, want := range map[string]string{
		"": "", "Hello, WORLD 1": "hello, world 1", "ÀÉ\u0130x": "àéi\u0307x", "ΟΔΟΣ": "οδοσ", "ǅ K ẞ": "ǆ k ß", "İİ": "i\u0307i\u0307",
	} {
		if got := lowercase(in); got != want {
			t.Errorf("lowercase(%q) = %q, want %q", in, got, want)
		}
	}
}
