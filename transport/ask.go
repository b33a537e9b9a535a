package transport

import "fmt"

// Ask makes the last stage read out rows of a session: from position TokenIdx on, it returns for every activation not the
// last row but the scores of it, until another Ask says otherwise. It travels ahead of the activation that it is first
// about.
type Ask struct {
	Seq      int32
	TokenIdx int32 // position of the first row that is read out
	Top      int32 // how many of the most probable tokens are wanted; 0 is the logits of all
}

func (*Ask) Kind() Kind { return KindAsk }

func (a *Ask) encode(e *encoder) {
	e.i32(a.Seq)
	e.i32(a.TokenIdx)
	if a.Top < 0 {
		e.fail("Top", fmt.Errorf("%d is negative", a.Top))
	}
	e.i32(a.Top)
}

func (a *Ask) decode(d *decoder) {
	a.Seq = d.i32("Seq")
	a.TokenIdx = d.i32("TokenIdx")
	if a.Top = d.i32("Top"); a.Top < 0 {
		d.fail("Top", fmt.Errorf("%d is negative", a.Top))
	}
}
