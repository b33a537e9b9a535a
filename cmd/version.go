package cmd

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"dchain/units"
)

// buildInfo says what this program is; peers with another numerics version refuse each other.
type buildInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Numerics int    `json:"numerics"`
}

func readBuildInfo() buildInfo {
	b := buildInfo{Version: "devel", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Numerics: units.NumericsVersion}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		b.Version = v
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (b buildInfo) String() string {
	revision := ""
	if b.Revision != "" {
		revision = " (" + b.Revision[:min(12, len(b.Revision))]
		if b.Modified {
			revision += ", modified"
		}
		revision += ")"
	}
	return fmt.Sprintf("dchain %s%s, numerics %d, %s %s", b.Version, revision, b.Numerics, b.Go, b.Platform)
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "version",
		Short: "Print the build and the numerics version",
		Long: `version prints what this program was built from, and the version of its arithmetic. Machines with different numerics
versions would not give the same bits and refuse each other.`,
		Example: "  dchain version\n  dchain version --json",
		Args:    atMost(0, "no arguments"),
		RunE: func(*cobra.Command, []string) error {
			b := readBuildInfo()
			if asJSON {
				return a.ui.json(b)
			}
			return a.ui.printf("%s\n", b)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}
