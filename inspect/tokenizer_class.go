package inspect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// set is a class of characters while it is translated: items in the engine's syntax, and complements that belong to it,
// too. Complements, \P{L} among them, are never written as items: in a class that has one, and in the union that the engine
// makes of the first characters of alternatives, it does not look at the items that follow.
type set struct {
	items   strings.Builder
	parts   []*set // each negated
	negated bool
}

// text writes the set as an expression that matches one character.
func (s *set) text() string {
	items := s.items.String()
	switch {
	case len(s.parts) == 0 && s.negated:
		return "[^" + items + "]"
	case len(s.parts) == 0:
		return "[" + items + "]"
	case s.negated && len(s.parts) == 1 && len(s.parts[0].parts) == 0: // what the complement lacks, but for the items
		if items != "" {
			items = "-[" + items + "]"
		}
		return "[" + s.parts[0].items.String() + items + "]"
	}
	var texts []string
	if items != "" {
		texts = append(texts, "["+items+"]")
	}
	for _, p := range s.parts {
		texts = append(texts, p.text())
	}
	union := strings.Join(texts, "|")
	if s.negated {
		return "(?:(?!" + union + ")" + anything + ")"
	}
	return "(?:" + union + ")"
}

// add joins another set to this one.
func (s *set) add(other *set) {
	if other.negated {
		s.parts = append(s.parts, other)
		return
	}
	s.items.WriteString(other.items.String())
	s.parts = append(s.parts, other.parts...)
}

// addRange adds characters and, if case is ignored, those that fold to the same.
func (s *set) addRange(low, high rune, fold bool) error {
	write := func(low, high rune) {
		s.items.WriteString(quote(low))
		if low < high {
			s.items.WriteString("-" + quote(high))
		}
	}
	write(low, high)
	if !fold {
		return nil
	}
	for c := low; c <= high; c++ {
		if c > unicode.MaxASCII && (unicode.In(c, unicode.L, unicode.M) || unicode.SimpleFold(c) != c) {
			return fmt.Errorf("%q where case is ignored is not supported, only ASCII letters", c)
		}
		for f := unicode.SimpleFold(c); f != c; f = unicode.SimpleFold(f) {
			if f < low || f > high {
				write(f, f)
			}
		}
	}
	return nil
}

// class translates what follows an opening bracket.
func (t *translator) class(fold bool, depth int) (*set, error) {
	if depth > deepestGroups {
		return nil, errors.New("classes are nested too deep")
	}
	s := &set{negated: t.take("^")}
	for first := true; ; first = false {
		switch {
		case t.at == len(t.in):
			return nil, errors.New("a class is not closed")
		case t.ahead("[:"), t.ahead("&&"):
			return nil, unsupported(string(t.in[t.at : t.at+2]))
		case t.take("["):
			inner, err := t.class(fold, depth+1)
			if err != nil {
				return nil, err
			}
			s.add(inner)
			continue
		case !first && t.take("]"):
			return s, nil
		case first && t.ahead("]") && !slices.Contains(t.in[t.at+1:], ']'):
			return nil, errors.New("a class is empty")
		}
		if err := t.classItem(s, fold); err != nil {
			return nil, err
		}
	}
}

// classItem translates a character, a range, or an escape that stands for a set.
func (t *translator) classItem(s *set, fold bool) error {
	if t.ahead(`\`) {
		t.at++
		named, err := t.setEscape(fold)
		if err != nil {
			return err
		}
		if named == nil {
			t.at--
		} else {
			if t.ahead("-") && !t.ahead("-]") {
				return unsupported("- after a set in a class")
			}
			s.add(named)
			return nil
		}
	}
	low, err := t.classChar()
	if err != nil {
		return err
	}
	if !t.ahead("-") || t.ahead("-]") {
		return s.addRange(low, low, fold)
	}
	t.at++
	if t.ahead("[") {
		return unsupported("-[ after a character in a class")
	}
	high, err := t.classChar()
	if err != nil {
		return err
	}
	if low > high {
		return fmt.Errorf("the range %c-%c is empty", low, high)
	}
	if err := s.addRange(low, high, fold); err != nil {
		return err
	}
	if t.take("-") { // after a range it stands for itself
		return s.addRange('-', '-', fold)
	}
	return nil
}

// classChar reads one character of a class, which may be escaped.
func (t *translator) classChar() (rune, error) {
	if t.at == len(t.in) {
		return 0, errors.New("a class is not closed")
	}
	if t.take(`\`) {
		if t.at == len(t.in) {
			return 0, errors.New("a backslash at the end")
		}
		return t.charEscape()
	}
	t.at++
	return t.in[t.at-1], nil
}

// setEscape translates what follows a backslash if it stands for a set; nil: it does not.
func (t *translator) setEscape(fold bool) (*set, error) {
	s := &set{}
	c := t.peek()
	switch c {
	case 's', 'S', 'd', 'D':
		s.items.WriteString(`\` + string(unicode.ToLower(c)))
		s.negated = unicode.IsUpper(c)
	case 'w', 'W':
		s.items.WriteString(wordClass)
		s.negated = c == 'W'
	case 'h', 'H':
		s.items.WriteString("0-9a-fA-F")
		s.negated = c == 'H'
	case 'p', 'P':
		t.at++
		name, err := t.property()
		if err != nil {
			return nil, err
		}
		s.negated = c == 'P'
		if rest, ok := strings.CutPrefix(name, "^"); ok {
			name, s.negated = rest, !s.negated
		}
		if fold && !slices.Contains([]string{"N", "Nd", "P", "Z", "Zs"}, name) {
			return nil, fmt.Errorf(`\p{%s} where case is ignored is not supported`, name)
		}
		s.items.WriteString(`\p{` + name + "}")
		return s, nil
	default:
		return nil, nil
	}
	t.at++
	return s, nil
}

// property reads what follows \p or \P: a general category by its short name, or a script, after a ^ that stands for the
// complement.
func (t *translator) property() (string, error) {
	start := t.at
	end := slices.Index(t.in[t.at:], '}')
	if !t.take("{") || end < 0 {
		return "", unsupported(`\` + string(t.in[start-1]) + " without braces")
	}
	text := string(t.in[t.at : start+end])
	t.at = start + end + 1
	name := strings.TrimPrefix(text, "^")
	_, category := unicode.Categories[name]
	_, script := unicode.Scripts[name]
	if !script && (!category || len(name) > 2) {
		return "", fmt.Errorf("property %q is not supported, only general categories such as Lu and scripts such as Han", name)
	}
	return text, nil
}
