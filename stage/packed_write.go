package stage

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"path/filepath"

	"dchain/inspect"
	"dchain/units"
)

// packedWrite is the size of one write: file systems give large writes large pages.
const packedWrite = 16 << 20

// writePacked writes the finished matrices of parts to path.
func writePacked(ctx context.Context, path, key, model string, dev units.Packer, parts []matrixPart) error {
	inspect.RemoveStaleTemps(filepath.Dir(path))
	f, err := inspect.CreateTemp(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, packedWrite)
	if err := writeParts(ctx, w, packedIndex{Key: key, Model: model}, dev, parts); err != nil {
		return inspect.DiscardTemp(f, err)
	}
	if err := w.Flush(); err != nil {
		return inspect.DiscardTemp(f, err)
	}
	return inspect.CommitTemp(f, path)
}

// packedSize is what the matrices of parts take in a file.
func packedSize(parts []matrixPart) int64 {
	var size int64
	for _, p := range parts {
		size += (p.linear.Bytes() + packedAlign - 1) / packedAlign * packedAlign
	}
	return size
}

func writeParts(ctx context.Context, w io.Writer, x packedIndex, dev units.Packer, parts []matrixPart) error {
	blocks := &blockWriter{w: w}
	for i := range parts {
		p := &parts[i]
		if err := ctx.Err(); err != nil {
			return err
		}
		b, err := dev.Packed(p.linear)
		if err != nil {
			return err
		}
		x.Matrices = append(x.Matrices, packedMatrix{Name: p.String(), Offset: blocks.size, Bytes: int64(len(b))})
		if _, err := blocks.Write(b); err != nil {
			return err
		}
		if _, err := blocks.Write(make([]byte, -len(b)&(packedAlign-1))); err != nil {
			return err
		}
	}
	x.Blocks = blocks.sums()
	text, err := json.Marshal(x)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	trailer := append(binary.LittleEndian.AppendUint64(sum[:], uint64(len(text))), packedMagic...)
	for _, b := range [][]byte{text, trailer} {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

// blockWriter passes bytes on and sums each block of them.
type blockWriter struct {
	w    io.Writer
	size int64
	done []uint32
	sum  uint32 // of the block begun
}

func (b *blockWriter) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(int64(len(rest)), packedBlock-b.size%packedBlock)
		b.sum = crc32.Update(b.sum, castagnoli, rest[:n])
		b.size += n
		rest = rest[n:]
		if b.size%packedBlock == 0 {
			b.done, b.sum = append(b.done, b.sum), 0
		}
	}
	return b.w.Write(p)
}

// sums are the sums of all blocks, the one begun included.
func (b *blockWriter) sums() []uint32 {
	if b.size%packedBlock == 0 {
		return b.done
	}
	return append(b.done, b.sum)
}

// String names the matrix within a stage: its tensor, rows, shape and format.
func (p *matrixPart) String() string {
	return fmt.Sprintf("%s %v %dx%d %v", p.tensor.Name, p.rows, p.n, p.k, p.mode)
}
