package inspect

import (
	"strings"
	"testing"
)

// TestExpressions holds what expressions match against the tokenizers library 0.23 with Oniguruma: the pieces into which a
// Split pre-tokenizer of behavior Isolated cuts a text.
func TestExpressions(t *testing.T) {
	for _, c := range []struct{ expr, text, want string }{
		{`\w+`, "aⅣb ⓐ c\u200dd e\u200cf _ x² ーा ͅ ", "aⅣb¦ ¦ⓐ¦ ¦c¦\u200d¦d¦ ¦e¦\u200c¦f¦ ¦_¦ ¦x²¦ ¦ーा¦ ¦ͅ¦ "},
		{"[a[bc]]", "abcd[", "a¦b¦c¦d["},
		{"a{,3}", "aaaaab{,3}", "aaa¦aa¦b¦{¦,¦3¦}"},
		{"[a-c-[b]]", "abc-[b]d", "a¦b¦c¦-¦[¦b¦]d"},
		{"(?:ab){2}+", "abababababxab", "abababab¦abxab"},
		{"a{2}+", "aaaaaaa", "aaaaaa¦a"},
		{"a{2}?", "aaaaaaa", "aa¦aa¦aa¦a"},
		{"a{1,2}+", "aaaaa", "aaaaa"},
		{"a{1,2}?", "aaaaa", "a¦a¦a¦a¦a"},
		{"a*+a", "aaa", "aaa"},
		{"a++", "aaa b", "aaa¦ b"},
		{"(?i:'s)", "'s 'S 'ſ", "'s¦ ¦'S¦ ¦'ſ"},
		{"(?i:k)", "kKK", "k¦K¦K"},
		{"(?i)[a-k]", "kKKſs", "k¦K¦K¦ſs"},
		{"(?i)[^k]", "kKKx", "kKK¦x"},
		{"(?i)[^a-z]", "ſKx1", "ſKx¦1"},
		{"a(?i)b|c", "aBaCCc", "aB¦aC¦Cc"},
		{"(?i)b|c", "BC", "B¦C"},
		{"^", "a\u000ab\u000a", "a\u000a¦b\u000a"},
		{"^a", "a\u000aa", "a¦\u000a¦a"},
		{"a$", "a\u000aa\u000a", "a¦\u000a¦a¦\u000a"},
		{"[]a]", "]a[", "]¦a¦["},
		{"[^]a]", "]ab", "]a¦b"},
		{`\h`, "aAgG1", "a¦A¦gG¦1"},
		{"(?m:.)", "a\u000ab", "a¦\u000a¦b"},
		{"(?m:a.b)", "a\u000ab", "a\u000ab"},
		{`\d`, "1²٣", "1¦²¦٣"},
		{`\s`, "a\u0085b\u00a0c\u200bd\u180ee", "a¦\u0085¦b¦\u00a0¦c\u200bd\u180ee"},
		{".", "a\u000ab\u000dc", "a¦\u000a¦b¦\u000d¦c"},
		{"{", "a{", "a¦{"},
		{"a{", "a{b", "a{¦b"},
		{"a{,}", "a{,}a", "a{,}¦a"},
		{"a{b}", "a{b}", "a{b}"},
		{"]", "a]", "a¦]"},
		{"}", "a}", "a¦}"},
		{`\/`, "/", "/"},
		{`[\W_]`, "a_-", "a¦_¦-"},
		{`[a\S]`, " ab", " ¦a¦b"},
		{"(?<n>a)", "a", "a"},
		{`\bfoo\b`, "foo Ⅳfoo foo", "foo¦ Ⅳfoo ¦foo"},
		{`\b`, "a b", "a¦ ¦b"},
		{"[a-]", "a-b", "a¦-¦b"},
		{"[-a]", "a-b", "a¦-¦b"},
		{"[a-c-e]", "abcde-", "a¦b¦c¦d¦e¦-"},
		{"[0-9-a]", "0-9a", "0¦-¦9¦a"},
		{`\p{^L}`, "a1", "a¦1"},
		{`\P{L}`, "a1", "a¦1"},
		{`\p{Han}`, "漢a", "漢¦a"},
		{`\x41`, "A", "A"},
		{`\x{41}`, "A", "A"},
		{`\u0041`, "A", "A"},
		{"a+?", "aaa", "a¦a¦a"},
		{"a?+", "aa", "a¦a"},
		{"a{2}{3}", "aaaaaaaa", "aaaaaa¦aa"},
		{"(?#x)a", "a", "a"},
		{`\e`, "a", "a"},
		{`\Aa`, "aa\u000aa", "a¦a\u000aa"},
		{`a\z`, "a\u000aa", "a\u000a¦a"},
		{`a\Z`, "a\u000aa\u000a", "a\u000a¦a¦\u000a"},
		{`\v`, "a\u000bb\u000a", "a¦\u000b¦b\u000a"},
		{"(?i:'ll)", "'LL", "'LL"},
		{"(?i:n)", "ŉn", "ŉ¦n"},
		{"(?i:[a-z]+)", "straße Kſ", "stra¦ß¦e¦ ¦Kſ"},
		{"(?i:i)", "iIİı", "i¦I¦İı"},
		{"[^a]", "ab\u000a", "a¦b¦\u000a"},
		{"(?<=a)b", "ab", "a¦b"},
		{"(?<!a)b", "ab b", "ab ¦b"},
		{"(?>a|ab)c", "abc ac", "abc ¦ac"},
		{"a|", "ab", "a¦b"},
		{"[[a]b]", "ab]", "a¦b¦]"},
		{"[^[a]b]", "abc", "ab¦c"},
		{"[^[^a]b]", "abc", "a¦bc"},
		{"[a[^b]]", "abc", "a¦b¦c"},
		{"(?i)a(?-i)a", "aAaa", "a¦Aa¦a"},
		{"(?i-m:a)", "A", "A"},
		{`[\x41]`, "A", "A"},
		{`[a\-z]`, "a-z", "a¦-¦z"},
		{`[\p{L}~~b]`, "ab", "a¦b"},
		{"[a||b]", "a|b", "a¦|¦b"},
		{`\p{C}`, "a\u0378\u200d\ue000", "a¦\u0378¦\u200d¦\ue000"},
		{`\p{Cn}`, "a\u0378", "a¦\u0378"},
		{`\p{LC}`, "aA漢", "a¦A¦漢"},
		{`\p{L}{2,}+x`, "abcx", "abcx"},
		{`[^\W_]`, "a_-²", "a¦_-²"},
		{`[^\Wa]`, "ab-", "a¦b¦-"},
		{`[a\W&]`, "ab-&", "a¦b¦-¦&"},
		{"[^a[^bc]]", "abcd", "a¦b¦c¦d"},
		{"a(?i)b|c", "abcBC", "ab¦cBC"},
		{"x(?:a(?i)b|c)y", "xaBy xCy xacy xaCy", "xaBy¦ xCy ¦xacy¦ ¦xaCy"},
		{"(?i:[sdmt]|ll|ve|re)", "ſSd LLVe", "ſ¦S¦d¦ ¦LL¦Ve"},
		{"(?i:[^s]+)", "aſsb", "a¦ſs¦b"},
		{"a{,2}?b", "aab", "aab"},
		{"a{2,}?", "aaaaa", "aa¦aa¦a"},
		{"a{0}b", "ab", "a¦b"},
		{"(a|b){2}", "abab", "ab¦ab"},
		{"(?<x1>a)+b", "aab", "aab"},
		{`\$\#\-`, "$#-", "$#-"},
		{`[\$\#|.]`, "$#|.", "$¦#¦|¦."},
		{"[+--]", "+,-.", "+¦,¦-¦."},
		{"[!-/]", "!/0", "!¦/¦0"},
		{`\x{1F600}`, "😀a", "😀¦a"},
		{`[\u4e00-\u9fff]+`, "漢字a", "漢字¦a"},
		{`(?<=^|\s)a`, "a ba a", "a¦ ba ¦a"},
		{`(?<=\s|^)a`, "a ba a", "a¦ ba ¦a"},
		{`\Ba`, "ba a", "b¦a¦ a"},
		{"a{2}++a", "aaaaa", "aaaaa"},
		{"(?m)a.b", "a\u000ab", "a\u000ab"},
		{"(?m-i:.)", "\u000a", "\u000a"},
		{"(?im:A.B)", "a\u000ab", "a\u000ab"},
		{`\H`, "ag", "a¦g"},
		{`[\h]`, "ag", "a¦g"},
		{`[\H]`, "ag", "a¦g"},
		{"^$", "a\u000a\u000ab\u000a", "a\u000a¦\u000ab\u000a"},
		{`\n^`, "a\u000ab\u000a", "a¦\u000a¦b\u000a"},
		{`$\n`, "a\u000a", "a¦\u000a"},
		{`[\]\[^-]`, "][^-a", "]¦[¦^¦-¦a"},
		{"a|b|", "abc", "a¦b¦c"},
		{"(?:)", "ab", "a¦b"},
		{"(|a)+", "aa", "a¦a"},
		{"(?i:’s)", "’S", "’S"},
		{"(?i:a.)", "AB", "AB"},
		{`[^\s\p{L}\p{N}]+`, "a!!1 ", "a¦!!¦1 "},
		{`\s+(?!\S)`, "a   b", "a¦  ¦ b"},
		{"(?!)a", "a", "a"},
		{"a++b|a", "aab aa", "aab¦ ¦a¦a"},
		{`\p{Lu}\p{Ll}+`, "Abc aB", "Abc¦ aB"},
		{`[\p{Lu}\p{Lt}]`, "Aa", "A¦a"},
		{`[^\P{L}]`, "a1", "a¦1"},
		{`[\P{L}]`, "a1", "a¦1"},
		{`[\D]`, "a1", "a¦1"},
		{`[^\D]`, "a1", "a¦1"},
		{`[\P{N}\p{Nd}]`, "5½a", "5¦½¦a"},
		{`[^\P{L}\p{Lu}]`, "aA1", "a¦A1"},
		{`[^\P{L}\P{Lu}]`, "aA1", "a¦A¦1"},
		{`[^\S\r\n]+`, " a \r  ", " ¦a¦ ¦\r¦  "},
		{`[\S\d\t]`, "1\t ", "1¦\t¦ "},
		{`[\s\S]`, "a ", "a¦ "},
		{`[^\s\S]`, "a ", "a "},
		{`\P{L}x|\P{N}`, "a0", "a¦0"},
		{`\S+\t|\D`, "'\r0", "'¦\r¦0"},
		{`[^\S]`, "a ", "a¦ "},
		{` ?[^(\s|[.,!?…。，、।۔،])]+`, " hello, world (a|b) 。x", " hello¦,¦ world¦ (¦a¦|¦b¦) 。¦x"},
	} {
		find, err := compileExpression(c.expr)
		if err != nil {
			t.Error(err)
			continue
		}
		e := &encoder{}
		find.find(e, c.text)
		var pieces []string
		for _, cut := range e.cuts {
			pieces = append(pieces, c.text[cut.start:cut.end])
		}
		if got := strings.Join(pieces, "¦"); got != c.want {
			t.Errorf("%s on %q: have %q, want %q", c.expr, c.text, got, c.want)
		}
	}
}

// TestExpressionsRefused: what would mean something else to the engine, or nothing, is named.
func TestExpressionsRefused(t *testing.T) {
	for _, c := range []struct{ expr, want string }{
		{"(?i:ss)", `"ss" where case is ignored`},
		{"(?i:s(?:t))", `"st" where case is ignored`},
		{"(?i:ß)", "'ß' where case is ignored"},
		{"(?i:[ß])", "'ß' where case is ignored"},
		{"(?i:[à-þ])", "'à' where case is ignored"},
		{`(?i)\p{Lu}`, `\p{Lu} where case is ignored`},
		{"[a&&b]", `"&&"`},
		{"[[:alpha:]]", `"[:"`},
		{`[\w-x]`, "- after a set in a class"},
		{"[a-[b]]", "-[ after a character in a class"},
		{"[b-a]", "range b-a is empty"},
		{"[]", "empty"},
		{"[a", "not closed"},
		{`[\b]`, `"\\b"`},
		{`[a\`, "backslash"},
		{`\R`, `"\\R"`},
		{`\X`, `"\\X"`},
		{`\N`, `"\\N"`},
		{`\O`, `"\\O"`},
		{`\K`, `"\\K"`},
		{`\G`, `"\\G"`},
		{`\0`, `"\\0"`},
		{`(a)\1`, `"\\1"`},
		{`\k<n>`, `"\\k"`},
		{`\xE9`, `"\\xE9"`},
		{`\x{110000}`, `"\\x{110000"`},
		{`\u12`, `"\\u12"`},
		{`\pL`, "without braces"},
		{`\p{Alpha}`, `property "Alpha"`},
		{`\p{L`, "without braces"},
		{"(?s:.)", `"(?s"`},
		{"(?x: a )", `"(?x"`},
		{"(?~a)", `"(?~"`},
		{"(?<a", `"(?<a"`},
		{"(?", `"(?"`},
		{"(*FAIL)", `"(*"`},
		{"(?#a", "comment without end"},
		{"(a", "not closed"},
		{"a)", "parenthesis too many"},
		{"*a", "nothing to repeat"},
		{"a{3,1}", `"{3,1}"`},
		{"a{2,2}?", `"{2,2}"`},
		{"a**", `"a**"`},
		{"a+{2}", `"a+{"`},
		{`\b+`, `"\\b+"`},
		{"^*", `"^*"`},
		{"(?=a)?", `"(?=a)?"`},
		{strings.Repeat("(", 200), "nested too deep"},
		{strings.Repeat("[", 200), "nested too deep"},
	} {
		if _, err := compileExpression(c.expr); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.60s: error %v, want one with %q", c.expr, err, c.want)
		}
	}
}

func FuzzExpression(f *testing.F) {
	for _, expr := range []string{gpt2Words, "[a[^b]&]{2,}+", `(?i:'s)|\x{1F600}\u0041[^\W_]`, "a(?i)b|c", " ?[^(\\s|[.,!?…]])+"} {
		f.Add(expr, "ab's 1 ſ")
	}
	f.Fuzz(func(t *testing.T, expr, text string) {
		if len(expr) > 60 || len(text) > 20 || strings.ContainsAny(expr, "{") { // large repeats take long to compile
			return
		}
		find, err := compileExpression(expr)
		if err != nil {
			return
		}
		e := &encoder{}
		find.find(e, repairUTF8(text))
	})
}
