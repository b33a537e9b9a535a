package inspect

import (
	"cmp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// matcher finds added tokens in a text: from left to right, at each place the longest.
type matcher struct {
	root  [256]int32 // node of each first byte, 0: none
	nodes []trieNode // node 0 is not used
	flags map[int32]addedToken
}

type trieNode struct {
	next  []trieEdge
	token int32 // id+1 of the token that ends here, 0: none
}

type trieEdge struct {
	b  byte
	to int32
}

func sortAdded(list []addedToken) {
	slices.SortFunc(list, func(a, b addedToken) int { return cmp.Compare(a.ID, b.ID) })
}

// add enters a token under the text it is found by.
func (m *matcher) add(text string, a addedToken) {
	if text == "" {
		return
	}
	if m.nodes == nil {
		m.nodes = make([]trieNode, 1)
		m.flags = make(map[int32]addedToken)
	}
	node := m.root[text[0]]
	if node == 0 {
		node = m.newNode()
		m.root[text[0]] = node
	}
	for i := 1; i < len(text); i++ {
		to := m.child(node, text[i])
		if to == 0 {
			to = m.newNode()
			m.nodes[node].next = append(m.nodes[node].next, trieEdge{text[i], to})
		}
		node = to
	}
	m.nodes[node].token = int32(a.ID) + 1
	if a.SingleWord || a.LStrip || a.RStrip {
		m.flags[int32(a.ID)] = a
	}
}

func (m *matcher) newNode() int32 {
	m.nodes = append(m.nodes, trieNode{})
	return int32(len(m.nodes) - 1)
}

func (m *matcher) child(node int32, b byte) int32 {
	for _, e := range m.nodes[node].next {
		if e.b == b {
			return e.to
		}
	}
	return 0
}

// longest returns the end and id of the longest token that starts at a place, or -1.
func (m *matcher) longest(text string, start int) (end int, id int32) {
	id = -1
	node := m.root[text[start]]
	for i := start + 1; node != 0; i++ {
		if token := m.nodes[node].token; token != 0 {
			end, id = i, token-1
		}
		if i == len(text) {
			break
		}
		node = m.child(node, text[i])
	}
	return end, id
}

// split calls emit for the pieces of a text in order: tokens with their id, what lies between them with id -1. A token
// that strips takes the white space beside it along; one that must be a word of its own is text where it is not.
func (m *matcher) split(text string, emit func(piece string, start int, id int32)) {
	done := 0
	if m.nodes != nil {
		for i := 0; i < len(text); {
			if m.root[text[i]] == 0 {
				i++
				continue
			}
			end, id := m.longest(text, i)
			if id < 0 {
				i++
				continue
			}
			start := i
			i = end
			if f, ok := m.flags[id]; ok {
				if f.SingleWord && (endsInWord(text[:start]) || startsWithWord(text[end:])) {
					continue
				}
				if f.LStrip {
					start = max(done, len(strings.TrimRightFunc(text[:start], unicode.IsSpace)))
				}
				if f.RStrip {
					end = len(text) - len(strings.TrimLeftFunc(text[end:], unicode.IsSpace))
				}
			}
			if done < start {
				emit(text[done:start], done, -1)
			}
			emit(text[start:end], start, id)
			done = end
			i = max(i, end)
		}
	}
	if done < len(text) {
		emit(text[done:], done, -1)
	}
}

func endsInWord(s string) bool {
	r, size := utf8.DecodeLastRuneInString(s)
	return size > 0 && isWord(r)
}

func startsWithWord(s string) bool {
	r, size := utf8.DecodeRuneInString(s)
	return size > 0 && isWord(r)
}
