package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
)

// Device is a machine that offers to hold layers.
type Device struct {
	ID          string // peer id: orders devices and tells them apart; the key's fingerprint, or the name
	Name        string
	Addr        string
	Fingerprint string
	Head        bool

	// Score is the measured capacity in GB/s: bytes of quantised weights, in 1e9, that single-row products get through
	// per second. Layers are shared in proportion to it. 0 means that the device takes no layers.
	Score float64
	// Memory is the free memory in bytes. 0 means not known: it does not limit.
	Memory int64
	// Readout says that the device holds the readout in place of the head where it is the last stage.
	Readout bool
}

// share is a device while layers are apportioned.
type share struct {
	Device
	limit  int // most layers it can take
	layers int
}

// Apportion shares the layers out in proportion to the scores by largest remainder, within each device's memory. The
// stages are the head, then the others by id; a device other than the head that gets no layers is left out. The result
// does not depend on the order of devices. A model that does not fit is a *FitError with the numbers: nothing is
// left out or shrunk to make it fit. A head without the memory for the readout does where any other device takes it.
func Apportion(need Need, devices []Device) ([]Stage, error) {
	stages, err := apportion(need, devices, true)
	var fit *FitError
	if !errors.As(err, &fit) || slices.ContainsFunc(devices, func(d Device) bool { return !d.Head && d.Score > 0 && !d.Readout }) {
		return stages, err
	}
	if others, err := apportion(need, devices, false); err == nil && reader(others) > 0 {
		return others, nil
	}
	return nil, fit
}

// apportion is Apportion with a head that has room for the readout, or need not have it.
func apportion(need Need, devices []Device, headReads bool) ([]Stage, error) {
	if err := need.Validate(); err != nil {
		return nil, err
	}
	shares, err := limits(need, devices, headReads)
	if err != nil {
		return nil, err
	}
	divide(need.Layers, shares)

	stages := make([]Stage, 0, len(shares))
	next := 0
	last := false // the last stage so far can read out
	for _, s := range shares {
		if s.layers == 0 && !s.Head {
			continue
		}
		r := None
		if s.layers > 0 {
			r = Range{next, next + s.layers - 1}
			next += s.layers
		}
		stages = append(stages, Stage{
			Name: s.Name, Head: s.Head, Addr: s.Addr, Fingerprint: s.Fingerprint, Range: r, Score: s.Score, Memory: s.Memory,
		})
		last = s.Readout && !s.Head
	}
	stages[len(stages)-1].Readout = last
	need.Size(stages)
	return stages, nil
}

// limits puts the devices in order and finds what each can take, beside the readout where it may have to hold that. It fails
// unless exactly one device is the head and all layers find room.
func limits(need Need, devices []Device, headReads bool) ([]share, error) {
	shares, err := order(devices)
	if err != nil {
		return nil, err
	}
	room, able := 0, false
	for i := range shares {
		s := &shares[i]
		reads := s.Readout // any of them may be the last
		if s.Head {
			reads = headReads
		}
		fits := need.Fit(s.Memory, reads)
		if s.Head && fits < 0 {
			return nil, &FitError{What: fmt.Sprintf("embedding, readout and buffers on the head (%s)", s.Name),
				Need: need.Total(0, reads), Have: s.Memory, Kept: reserve(s.Memory), Of: need}
		}
		if s.Score > 0 {
			able = true
			s.limit = max(fits, 0)
			room += s.limit
		}
	}
	if !able {
		return nil, errors.New("no device has a capacity above 0")
	}
	if room < need.Layers {
		return nil, tooSmall(need, shares, room)
	}
	return shares, nil
}

// order sorts devices into stage order and rejects what cannot be planned.
func order(devices []Device) ([]share, error) {
	shares := make([]share, len(devices))
	for i, d := range devices {
		shares[i].Device = d
	}
	slices.SortFunc(shares, func(a, b share) int {
		if a.Head != b.Head {
			if a.Head {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.ID, b.ID)
	})
	for i, s := range shares {
		switch {
		case math.IsNaN(s.Score) || math.IsInf(s.Score, 0) || s.Score < 0:
			return nil, fmt.Errorf("%s has a capacity of %v", s.Name, s.Score)
		case s.Memory < 0:
			return nil, fmt.Errorf("%s has %d bytes of memory", s.Name, s.Memory)
		case i > 0 && s.Head:
			return nil, fmt.Errorf("both %s and %s are the head", shares[0].Name, s.Name)
		}
	}
	if len(shares) == 0 || !shares[0].Head {
		return nil, errors.New("no device is the head")
	}
	ids := map[string]bool{}
	for _, s := range shares {
		if ids[s.ID] {
			return nil, fmt.Errorf("%s appears twice", s.Name)
		}
		ids[s.ID] = true
	}
	return shares, nil
}

// divide sets layers of each share: in proportion to the scores, at most limit. The sum of limits of shares with a
// score is at least layers. Arithmetic is exact, so that every machine gets the same answer.
func divide(layers int, shares []share) {
	open := make([]*share, 0, len(shares)) // not yet final
	for i := range shares {
		if shares[i].Score > 0 {
			open = append(open, &shares[i])
		}
	}
	// Devices whose quota exceeds their limit take the limit; what they leave raises the quotas of the others.
	quotas := map[*share]*big.Rat{}
	for {
		total := new(big.Rat)
		for _, s := range open {
			total.Add(total, new(big.Rat).SetFloat64(s.Score))
		}
		full := false
		for _, s := range open {
			q := new(big.Rat).SetFloat64(s.Score)
			q.Mul(q, new(big.Rat).SetInt64(int64(layers))).Quo(q, total)
			quotas[s] = q
			if q.Cmp(new(big.Rat).SetInt64(int64(s.limit))) >= 0 {
				s.layers = s.limit
				full = true
			}
		}
		if !full {
			break
		}
		for _, s := range open {
			layers -= s.layers
		}
		open = slices.DeleteFunc(open, func(s *share) bool {
			return quotas[s].Cmp(new(big.Rat).SetInt64(int64(s.limit))) >= 0
		})
		if len(open) == 0 {
			return
		}
	}
	// Whole parts first, then one layer each by largest fraction; the sort is stable, so ties go in stage order.
	fraction := map[*share]*big.Rat{}
	for _, s := range open {
		q := quotas[s]
		whole := new(big.Int).Quo(q.Num(), q.Denom())
		s.layers = int(whole.Int64())
		layers -= s.layers
		fraction[s] = new(big.Rat).Sub(q, new(big.Rat).SetInt(whole))
	}
	slices.SortStableFunc(open, func(a, b *share) int { return fraction[b].Cmp(fraction[a]) })
	for _, s := range open[:layers] {
		s.layers++
	}
}

// FitError says that a model does not fit into the memory there is.
type FitError struct {
	What       string // what does not fit
	Need, Have int64  // bytes
	Kept       int64  // bytes of Have that are to stay free
	Detail     string // where the memory is
	Of         Need   // what the model asks for
}

func (e *FitError) Error() string {
	msg := fmt.Sprintf("%s: needs %v", e.What, Bytes(e.Need))
	if e.Kept > 0 {
		msg += fmt.Sprintf(" and %v that stay free", Bytes(e.Kept))
	}
	msg += fmt.Sprintf(", have %v", Bytes(e.Have))
	if e.Detail != "" {
		msg += " (" + e.Detail + ")"
	}
	return msg
}

// Hint says what the operator can change.
func (e *FitError) Hint() string {
	hint := "add a machine, or lower --ctx"
	if e.Of.Sessions > 1 {
		hint += " or the sessions at a time"
	}
	if e.Of.Limbs > 1 {
		hint += ", or use --weights int8"
	}
	return hint
}

// tooSmall explains that the devices take only room of the layers.
func tooSmall(need Need, shares []share, room int) error {
	e := &FitError{Need: need.Total(need.Layers, true), Of: need}
	var detail []string
	for _, s := range shares {
		if s.Score == 0 && !s.Head {
			continue
		}
		if !s.Head {
			e.Need += need.Scratch
		}
		usable := Usable(s.Memory)
		if s.Score == 0 { // a head without layers: its own part is all it gives, and limits found that to fit
			usable = need.Total(0, true)
			e.Have += usable
		} else {
			e.Have += s.Memory
			e.Kept += reserve(s.Memory)
		}
		detail = append(detail, fmt.Sprintf("%s: %s, %s", s.Name, Bytes(usable), Plural(s.limit, "layer")))
	}
	e.What = fmt.Sprintf("only %d of %d layers find room at context %d for %s", room, need.Layers, need.Context, Plural(need.Sessions, "session"))
	e.Detail = strings.Join(detail, "; ")
	return e
}
