package inspect

import (
	"crypto/rand"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	tmpPrefix = ".tmp-"
	tmpMaxAge = 24 * time.Hour
)

// cacheError names what the operator can change.
func cacheError(err error) error {
	return fmt.Errorf("writing to the model cache: %w (HF_HOME sets another folder)", err)
}

// CreateTemp makes a file beside path that no other process has. CommitTemp gives it its name.
func CreateTemp(path string) (*os.File, error) {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, cacheError(err)
	}
	f, err := os.OpenFile(filepath.Join(dir, tmpPrefix+rand.Text()), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return nil, cacheError(err)
	}
	return f, nil
}

// CommitTemp makes a file made by CreateTemp durable under its name, or removes it.
func CommitTemp(f *os.File, path string) error {
	err := f.Sync()
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
		return cacheError(err)
	}
	return nil
}

// DiscardTemp removes a file made by CreateTemp, and says what err, the reason, means for the operator.
func DiscardTemp(f *os.File, err error) error {
	f.Close()
	os.Remove(f.Name())
	return cacheError(err)
}

// RemoveStaleTemps removes what processes that died while writing into a folder left there more than a day ago.
func RemoveStaleTemps(dir string) {
	entries, _ := os.ReadDir(dir) // a folder that cannot be read has nothing to remove
	for _, e := range entries {
		if info, err := e.Info(); err == nil && isStaleTemp(info) {
			os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

func isStaleTemp(info fs.FileInfo) bool {
	return strings.HasPrefix(info.Name(), tmpPrefix) && time.Since(info.ModTime()) > tmpMaxAge
}

// writeAtomic writes a whole file under its name.
func writeAtomic(path string, data []byte) error {
	f, err := CreateTemp(path)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return DiscardTemp(f, err)
	}
	return CommitTemp(f, path)
}
