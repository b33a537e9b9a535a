package inspect

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Options says how models are found. The zero value is ready for use.
type Options struct {
	// Revision of a hub model: branch, tag or commit. "" means what the model string says, or else "main".
	Revision string
	// Builtin is the embedded model. Without it "builtin" is an error.
	Builtin fs.FS
	// HTTP overrides the client of hub requests; its redirect policy and total timeout are not used.
	HTTP *http.Client
	// Env reads an environment variable (HF_ENDPOINT, HF_TOKEN, HF_TOKEN_PATH, HF_HOME, HF_HUB_CACHE,
	// HF_HUB_OFFLINE). nil means os.Getenv.
	Env func(string) string
	// OnRetry, which may be nil, is told of every hub request that will be repeated. It must be safe for concurrent use.
	OnRetry func(Retry)

	// HeaderTimeout bounds the wait for the answer to a hub request (0: 30 s), StallTimeout the wait for the next
	// bytes of its body (0: 30 s).
	HeaderTimeout, StallTimeout time.Duration
	// Backoff is the wait before the first repetition (0: 500 ms); it doubles each time up to MaxBackoff (0: 60 s),
	// which also caps the server's Retry-After. A request is given up after Retries repetitions without progress (0: 6).
	Backoff, MaxBackoff time.Duration
	Retries             int
}

// Validate refuses values that mean nothing.
func (o Options) Validate() error {
	if o.HeaderTimeout < 0 || o.StallTimeout < 0 || o.Backoff < 0 || o.MaxBackoff < 0 || o.Retries < 0 {
		return errors.New("hub timeouts, back-off and retries must not be negative")
	}
	return nil
}

func (o Options) env(name string) string {
	if o.Env != nil {
		return o.Env(name)
	}
	return os.Getenv(name)
}

// Model is an opened model: its files, what they mean, and where each tensor is.
type Model struct {
	Source Source
	Spec   Spec
	Index  *Index
	Config []byte // config.json

	scales *scaleCache
}

// Open finds a model and reads config and safetensors headers. model is "org/name[@revision]" on the hub, a folder
// that holds config.json (a path that exists, or starts with ".", "/" or "~"), "builtin", or "synthetic:NAME".
func Open(ctx context.Context, model string, opts Options) (*Model, error) {
	src, err := OpenSource(ctx, model, opts)
	if err != nil {
		return nil, err
	}
	m, err := readModel(ctx, src)
	if err != nil {
		src.Close()
		return nil, fmt.Errorf("opening model %s: %w", src.Location(), err)
	}
	return m, nil
}

func readModel(ctx context.Context, src Source) (*Model, error) {
	config, err := src.ReadFile(ctx, "config.json")
	if err != nil {
		return nil, err
	}
	generation, err := src.ReadFile(ctx, "generation_config.json")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	ix, err := src.Index(ctx)
	if err != nil {
		return nil, err
	}
	spec, err := ParseConfig(config, generation, ix)
	if err != nil {
		return nil, err
	}
	return &Model{Source: src, Spec: spec, Index: ix, Config: config, scales: &scaleCache{byName: map[string]*blockScales{}}}, nil
}

// OpenSource finds the files of a model without reading any tensor header. See Open for what model may be.
func OpenSource(ctx context.Context, model string, opts Options) (Source, error) {
	if err := opts.Validate(); err != nil {
		return nil, err
	}
	if name, ok := strings.CutPrefix(model, "synthetic:"); ok {
		return localOnly(opts, func() (Source, error) { return NewSynthetic(name) })
	}
	if model == "builtin" {
		return localOnly(opts, func() (Source, error) {
			if opts.Builtin == nil {
				return nil, errors.New("opening model builtin: this program was built without one")
			}
			return NewFS(opts.Builtin, "builtin"), nil
		})
	}
	_, statErr := os.Stat(model)
	if model != "" && (statErr == nil || strings.ContainsRune("./~", rune(model[0])) || filepath.IsAbs(model)) {
		return localOnly(opts, func() (Source, error) { return openFolder(model, opts) })
	}
	id, revision, _ := strings.Cut(model, "@")
	if err := checkRepoID(id); err != nil {
		return nil, fmt.Errorf("opening model %q: neither a folder, nor builtin, synthetic:NAME or a hub repository "+
			"org/name[@revision]: %w", model, err)
	}
	switch {
	case revision == "":
		revision = opts.Revision
	case opts.Revision != "" && opts.Revision != revision:
		return nil, fmt.Errorf("opening model %q: revision %q contradicts it", model, opts.Revision)
	}
	return OpenHub(ctx, id, revision, opts)
}

// localOnly refuses a revision for what has none.
func localOnly(opts Options, open func() (Source, error)) (Source, error) {
	if opts.Revision != "" {
		return nil, fmt.Errorf("revision %q: only hub models have revisions", opts.Revision)
	}
	src, err := open()
	if err != nil {
		return nil, err
	}
	return src, nil
}

func openFolder(path string, opts Options) (Source, error) {
	fail := func(err error) (Source, error) { return nil, fmt.Errorf("opening model folder %q: %w", path, err) }
	dir := path
	if rest, ok := strings.CutPrefix(path, "~"); ok && (rest == "" || os.IsPathSeparator(rest[0])) {
		home, err := homeDir(opts)
		if err != nil {
			return fail(err)
		}
		dir = filepath.Join(home, rest)
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return fail(err)
	}
	info, err := os.Stat(dir)
	if err != nil {
		return fail(bareError(err))
	}
	if !info.IsDir() {
		return fail(errors.New("not a folder"))
	}
	if _, err := os.Stat(filepath.Join(dir, "config.json")); err != nil {
		return fail(errors.New("there is no config.json in it"))
	}
	return NewFS(os.DirFS(dir), dir), nil
}

// Close closes the source.
func (m *Model) Close() error { return m.Source.Close() }

// Fingerprint names the model as a hash of what must be equal on two machines for equal answers: the source's ID,
// config.json up to formatting, the names, dtypes and shapes of all tensors, the weight format, and the version of the
// arithmetic.
func (m *Model) Fingerprint(weights string, numerics int) [32]byte {
	h := sha256.New()
	hashBytes(h, []byte(m.Source.ID()))
	hashBytes(h, canonicalJSON(m.Config))
	for _, t := range m.Index.Sorted() {
		hashTensor(h, t)
	}
	hashBytes(h, []byte(weights))
	h.Write(binary.LittleEndian.AppendUint64(nil, uint64(numerics)))
	return [32]byte(h.Sum(nil))
}

// canonicalJSON sorts keys and drops white space; numbers stay as written. Config has been parsed before, so a
// failure means a Model made by hand: its bytes stand for themselves.
func canonicalJSON(data []byte) []byte {
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return data
	}
	out, err := json.Marshal(v)
	if err != nil {
		return data
	}
	return out
}

// StageTensors lists what a stage of layers first to last (inclusive; last < first for none) reads, and with embed or
// readout what those need: each tensor once, in the order of computation. Missing weights are one error naming them.
func (m *Model) StageTensors(first, last int, embed, readout bool) ([]Tensor, error) {
	if last >= first && (first < 0 || last >= m.Spec.Layers) {
		return nil, fmt.Errorf("layers %d-%d: the model has layers 0-%d", first, last, m.Spec.Layers-1)
	}
	c := tensorCollector{model: m, seen: map[string]bool{}}
	embedRoles, readoutRoles := m.Spec.HeadRoles()
	if embed {
		c.add(embedRoles, 0)
	}
	for layer := first; layer <= last; layer++ {
		c.add(m.Spec.LayerRoles(layer), layer)
	}
	if readout {
		c.add(readoutRoles, 0)
	}
	if n := len(c.missing); n > 0 {
		shown := c.missing[:min(n, 4)]
		more := ""
		if n > len(shown) {
			more = fmt.Sprintf(" and %d more", n-len(shown))
		}
		return nil, fmt.Errorf("%d tensors are missing from the model: %q%s", n, shown, more)
	}
	return c.tensors, nil
}

// Tensors lists the tensors of one role in a layer, those that the model has.
func (m *Model) Tensors(role Role, layer int) []Tensor {
	c := tensorCollector{model: m, seen: map[string]bool{}}
	c.add([]Role{role}, layer)
	return c.tensors
}

// tensorCollector gathers the tensors of roles: the weight or weights, and scales and bias where the file holds them.
type tensorCollector struct {
	model   *Model
	tensors []Tensor
	seen    map[string]bool
	missing []string
}

func (c *tensorCollector) add(roles []Role, layer int) {
	for _, role := range roles {
		for _, name := range c.model.Spec.WeightNames(role, layer) {
			if !c.take(name) && !slices.Contains(c.missing, name) {
				c.missing = append(c.missing, name)
			}
			c.take(name + scaleEnding)
		}
		if name := c.model.Spec.BiasName(role, layer); name != "" {
			c.take(name)
		}
	}
}

func (c *tensorCollector) take(name string) bool {
	t, ok := c.model.Index.Tensors[name]
	if ok && !c.seen[name] {
		c.seen[name] = true
		c.tensors = append(c.tensors, t)
	}
	return ok
}
