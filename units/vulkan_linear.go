package units

import (
	"fmt"

	"dchain/units/vk"
)

// vulkanPadK is what the inputs of a row are padded to: a step of linear_tile.comp.
const vulkanPadK = 64

// rowsPerPart is what the number of output rows of a part is padded to: a tile of the widest shader.
const rowsPerPart = 128

// vulkanLinear is a weight matrix on the device, in parts of as many output rows as one binding holds: each part
// [limbs][rows, padded][K, padded to 64] int8, padding zero.
type vulkanLinear struct {
	matrixRows
	dev      *vulkanDevice
	rowBytes int // of one limb
	perPart  int // output rows, but for the last
	parts    []linearPart
	scales   []float32
	scaleBuf *vk.Buffer
	packed   []byte // of OpenLinear, until Finish
}

type linearPart struct {
	first, count, padded int // output rows
	buf                  *vk.Buffer
}

func (d *vulkanDevice) NewLinear(name string, n, k int, mode WeightMode) (Linear, error) {
	l := &vulkanLinear{dev: d, rowBytes: padded(k, vulkanPadK)}
	if err := l.init(name, n, k, mode); err != nil {
		return nil, err
	}
	most := d.info.MaxRange / int64(l.rowBytes*mode.Limbs())
	l.perPart = int(min(most/rowsPerPart*rowsPerPart, int64(padded(n, rowsPerPart))))
	if l.perPart == 0 {
		return nil, fmt.Errorf("reserving %q: %d rows of %d bytes, the device binds %d bytes", name, rowsPerPart, l.rowBytes*mode.Limbs(), d.info.MaxRange)
	}
	for first := 0; first < n; first += l.perPart {
		if err := l.reserve(first, min(l.perPart, n-first)); err != nil {
			l.Close()
			return nil, fmt.Errorf("reserving %q: %w", name, err)
		}
	}
	l.scales = make([]float32, n)
	return l, nil
}

// reserve adds a part of count output rows.
func (l *vulkanLinear) reserve(first, count int) error {
	p := linearPart{first: first, count: count, padded: padded(count, rowsPerPart)}
	var err error
	if p.buf, err = l.dev.buffer(int64(p.padded*l.mode.Limbs()*l.rowBytes), vk.Local); err != nil {
		return err
	}
	l.parts = append(l.parts, p)
	return l.clearPadding(&p)
}

// clearPadding zeroes the rows from count to padded.
func (l *vulkanLinear) clearPadding(p *linearPart) error {
	if p.padded == p.count {
		return nil
	}
	zero := make([]byte, (p.padded-p.count)*l.rowBytes)
	for limb := range l.mode.Limbs() {
		if err := p.buf.Write(l.offset(p, limb, p.count), zero); err != nil {
			return err
		}
	}
	return nil
}

// offset is where a limb of output row n, counted within the part, lies.
func (l *vulkanLinear) offset(p *linearPart, limb, n int) int64 {
	return int64(limb*p.padded+n) * int64(l.rowBytes)
}

func (l *vulkanLinear) owner() Device { return l.dev }

func (l *vulkanLinear) Close() error {
	for _, p := range l.parts {
		l.dev.free(p.buf)
	}
	l.dev.free(l.scaleBuf)
	l.parts, l.scales, l.scaleBuf, l.packed = nil, nil, nil, nil
	return nil
}

func (l *vulkanLinear) Bytes() int64 {
	n := 4 * int64(l.n)
	for _, p := range l.parts {
		n += p.buf.Size()
	}
	return n
}

// putBytes bounds what is quantised on the host before it is sent, for a device whose memory the host does not see.
const putBytes = 16 << 20

func (l *vulkanLinear) PutRows(first int, rows []float32) error {
	count := len(rows) / l.k
	if err := l.check(first, count, len(rows), l.k); err != nil {
		return err
	}
	for done := 0; done < count; {
		p := &l.parts[(first+done)/l.perPart]
		n := min(count-done, p.first+p.count-first-done, max(1, putBytes/l.rowBytes))
		if err := l.putPart(p, first+done, n, rows[done*l.k:(done+n)*l.k]); err != nil {
			return err
		}
		done += n
	}
	return nil
}

// putPart quantises count rows of one part, into the device's memory where the host sees it.
func (l *vulkanLinear) putPart(p *linearPart, first, count int, rows []float32) error {
	memory := p.buf.Bytes()
	var host [2][]byte // rows of each limb
	if memory == nil {
		for limb := range l.mode.Limbs() {
			host[limb] = make([]byte, count*l.rowBytes)
		}
	}
	err := l.quantise(l.dev.pool, l.dev.kern, first, count, l.rowBytes/4, rows, func(n int, scale float32, limbs [][]uint32) {
		l.scales[n] = scale
		for limb, words := range limbs {
			var dst []byte
			if memory != nil {
				at := l.offset(p, limb, n-p.first)
				dst = memory[at : at+int64(l.rowBytes)]
			} else {
				dst = host[limb][(n-first)*l.rowBytes:][:l.rowBytes]
			}
			copy(int8s(words32(dst)), int8s(words))
		}
	})
	if err != nil || memory != nil {
		return err
	}
	for limb := range l.mode.Limbs() {
		if err := p.buf.Write(l.offset(p, limb, first-p.first), host[limb]); err != nil {
			return fmt.Errorf("loading %q: %w", l.name, err)
		}
	}
	return nil
}

func (l *vulkanLinear) Finish() error {
	if l.packed != nil {
		if err := l.unpack(); err != nil {
			return fmt.Errorf("loading packed %q: %w", l.name, err)
		}
	}
	if err := l.seal(); err != nil || l.scaleBuf != nil {
		return err
	}
	var err error
	if l.scaleBuf, err = l.dev.upload(floatBytes(nil, l.scales)); err != nil {
		return fmt.Errorf("finishing %q: %w", l.name, err)
	}
	return nil
}
