package inspect

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
)

// set is a class of characters while it is translated: items in the engine's syntax, and parts that are complements,
// which the engine cannot hold within a class.
type set struct {
	items   strings.Builder
	parts   []string
	negated bool
}

// text writes the set as an expression that matches one character.
func (s *set) text() string {
	if len(s.parts) == 0 {
		if s.negated {
			return "[^" + s.items.String() + "]"
		}
		return "[" + s.items.String() + "]"
	}
	parts := s.parts
	if s.items.Len() > 0 {
		parts = append([]string{"[" + s.items.String() + "]"}, parts...)
	}
	if s.negated {
		return "(?:(?!" + strings.Join(parts, "|") + ")" + anything + ")"
	}
	return "(?:" + strings.Join(parts, "|") + ")"
}

// add joins another set to this one.
func (s *set) add(other *set) {
	if other.negated {
		s.parts = append(s.parts, other.text())
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
		s.items.WriteString(`\` + string(c))
	case 'w':
		s.items.WriteString(wordClass)
	case 'W':
		s.items.WriteString(wordClass)
		s.negated = true
	case 'h', 'H':
		s.items.WriteString("0-9a-fA-F")
		s.negated = c == 'H'
	case 'p', 'P':
		t.at++
		name, err := t.property(c)
		if err != nil {
			return nil, err
		}
		if fold && !slices.Contains([]string{"N", "Nd", "P", "Z", "Zs"}, name[3:len(name)-1]) {
			return nil, fmt.Errorf("%s where case is ignored is not supported", name)
		}
		s.items.WriteString(name)
		return s, nil
	default:
		return nil, nil
	}
	t.at++
	return s, nil
}

// property translates what follows \p or \P: a general category by its short name, or a script.
func (t *translator) property(c rune) (string, error) {
	start := t.at
	end := slices.Index(t.in[t.at:], '}')
	if !t.take("{") || end < 0 {
		return "", unsupported(`\` + string(c) + " without braces")
	}
	if t.take("^") {
		c = map[rune]rune{'p': 'P', 'P': 'p'}[c]
	}
	name := string(t.in[t.at : start+end])
	t.at = start + end + 1
	_, category := unicode.Categories[name]
	_, script := unicode.Scripts[name]
	if !script && (!category || len(name) > 2) {
		return "", fmt.Errorf("property %q is not supported, only general categories such as Lu and scripts such as Han", name)
	}
	return `\` + string(c) + "{" + name + "}", nil
}
