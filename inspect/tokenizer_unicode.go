package inspect

import (
	"sort"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// byteRune is the printable character by which byte-level vocabularies write a byte: itself where it is printable and
// not a blank, else the next free one from U+0100 on. runeByte is the inverse for characters below U+0180, -1: none.
var byteRune, runeByte = func() (to [256]rune, from [0x180]int16) {
	for i := range from {
		from[i] = -1
	}
	next := rune(0x100)
	for b := range to {
		if b >= '!' && b <= '~' || b >= 0xA1 && b <= 0xAC || b >= 0xAE {
			to[b] = rune(b)
		} else {
			to[b] = next
			next++
		}
		from[to[b]] = int16(b)
	}
	return to, from
}()

// repairUTF8 replaces each maximal part of a character that is cut or malformed by one U+FFFD, as the Unicode standard
// recommends and Rust and Python do. (strings.ToValidUTF8 makes one of a whole run of bad bytes, range makes one for
// each byte.)
func repairUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 16)
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			size = max(1, partialLen(s[i:]))
		}
		b.WriteRune(r)
		i += size
	}
	return b.String()
}

// partialLen returns how many bytes at the start of s begin a well-formed character that s does not complete; 0 when
// the first byte cannot begin one, or when s does start with a whole character.
func partialLen[T string | []byte](s T) int {
	if len(s) == 0 {
		return 0
	}
	var need int
	low, high := byte(0x80), byte(0xBF) // range of the second byte
	switch c := s[0]; {
	case c >= 0xC2 && c <= 0xDF:
		need = 2
	case c >= 0xE0 && c <= 0xEF:
		need = 3
		if c == 0xE0 {
			low = 0xA0
		} else if c == 0xED {
			high = 0x9F
		}
	case c >= 0xF0 && c <= 0xF4:
		need = 4
		if c == 0xF0 {
			low = 0x90
		} else if c == 0xF4 {
			high = 0x8F
		}
	default:
		return 0
	}
	n := 1
	for n < need && n < len(s) && s[n] >= low && s[n] <= high {
		low, high = 0x80, 0xBF
		n++
	}
	if n == need {
		return 0
	}
	return n
}

// longMarks is how many characters that combine with the one before make a text unfit for package norm: it breaks runs
// of more than 30 of them, counted after decomposition, which normalisation proper does not.
const longMarks = 7

// normalizeForm applies a Unicode normalisation form.
func normalizeForm(form norm.Form, s string) string {
	marks := 0
	ascii := true
	for _, r := range s {
		if r < utf8.RuneSelf {
			marks = 0
			continue
		}
		ascii = false
		if p := norm.NFKD.PropertiesString(string(r)); p.CCC() == 0 && p.TrailCCC() == 0 {
			marks = 0
			continue
		}
		if marks++; marks > longMarks {
			return normalizeByHand(form, s)
		}
	}
	if ascii {
		return s
	}
	return form.String(s)
}

// normalizeByHand is normalisation as the standard defines it: decompose, order runs of combining marks by class,
// compose each mark with the last starter unless a mark of its class or higher stands between.
func normalizeByHand(form norm.Form, s string) string {
	decompose := norm.NFD
	if form == norm.NFKC || form == norm.NFKD {
		decompose = norm.NFKD
	}
	var runes []rune
	var classes []uint8
	for _, r := range s {
		for _, d := range decompose.String(string(r)) {
			runes = append(runes, d)
			classes = append(classes, norm.NFD.PropertiesString(string(d)).CCC())
		}
	}
	orderMarks(runes, classes)
	if form == norm.NFC || form == norm.NFKC {
		runes = compose(runes, classes)
	}
	return string(runes)
}

// marks sorts runes by class.
type marks struct {
	runes   []rune
	classes []uint8
}

func (m marks) Len() int           { return len(m.runes) }
func (m marks) Less(i, j int) bool { return m.classes[i] < m.classes[j] }
func (m marks) Swap(i, j int) {
	m.runes[i], m.runes[j] = m.runes[j], m.runes[i]
	m.classes[i], m.classes[j] = m.classes[j], m.classes[i]
}

func orderMarks(runes []rune, classes []uint8) {
	for i := 0; i < len(runes); {
		j := i
		for j < len(runes) && classes[j] != 0 {
			j++
		}
		if j > i+1 {
			sort.Stable(marks{runes[i:j], classes[i:j]})
		}
		i = max(j, i+1)
	}
}

// compose works in place on decomposed and ordered runes.
func compose(runes []rune, classes []uint8) []rune {
	starter, out := -1, 0
	last := uint8(0) // class of the rune before the current one, when it stayed behind the starter
	for i, r := range runes {
		class := classes[i]
		adjacent := starter >= 0 && starter == out-1
		if starter >= 0 && (adjacent || class > last) {
			if c, ok := composePair(runes[starter], r); ok {
				runes[starter] = c
				continue
			}
		}
		if class == 0 {
			starter = out
		}
		last = class
		runes[out] = r
		out++
	}
	return runes[:out]
}

// composePair returns the primary composite of two characters.
func composePair(a, b rune) (rune, bool) {
	s := norm.NFC.String(string(a) + string(b))
	r, size := utf8.DecodeRuneInString(s)
	return r, size == len(s)
}

// isWord says whether a character counts as part of a word for single_word, as \w does in Rust.
func isWord(r rune) bool {
	return unicode.In(r, unicode.L, unicode.M, unicode.Nd, unicode.Nl, unicode.Pc, unicode.Other_Alphabetic,
		unicode.Join_Control)
}

// lowercase maps each character by itself, a capital sigma at the end of a word too. The capital i with a dot is the only
// one whose small form is two characters.
func lowercase(s string) string {
	return strings.ReplaceAll(strings.Map(func(r rune) rune {
		if r == dottedI {
			return r
		}
		return unicode.ToLower(r)
	}, s), string(dottedI), "i\u0307")
}

const dottedI = '\u0130'
