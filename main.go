// Command dchain runs one language model split over several machines, bit for bit the unsplit answer.
package main

import (
	"embed"
	"io/fs"
	"os"

	"dchain/cmd"
)

// files holds the built-in model, which runs when no other is named.
//
//go:embed testdata/tales-qwen2/config.json testdata/tales-qwen2/generation_config.json
//go:embed testdata/tales-qwen2/tokenizer.json testdata/tales-qwen2/tokenizer_config.json
//go:embed testdata/tales-qwen2/model.safetensors
var files embed.FS

func main() {
	builtin, err := fs.Sub(files, "testdata/tales-qwen2")
	if err != nil {
		panic(err) // the path is a constant
	}
	os.Exit(cmd.Main(builtin, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
