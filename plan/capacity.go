package plan

import (
	"fmt"
	"strings"
)

// ParseCapacities reads "name=score[:memory],..." such as "laptop=20:8GiB,desk=60:32GiB". The first device is the
// head. The score is in GB/s as in Device.Score, the memory as ParseBytes reads it.
func ParseCapacities(s string) ([]Device, error) {
	var devices []Device
	seen := map[string]bool{}
	for item := range strings.SplitSeq(s, ",") {
		d, err := parseCapacity(strings.TrimSpace(item))
		if err != nil {
			return nil, err
		}
		if seen[d.Name] {
			return nil, fmt.Errorf("bad capacity %q: %s appears twice", item, d.Name)
		}
		seen[d.Name] = true
		d.Head = len(devices) == 0
		devices = append(devices, d)
	}
	return devices, nil
}

func parseCapacity(item string) (Device, error) {
	bad := func(why string) (Device, error) {
		return Device{}, fmt.Errorf("bad capacity %q: %s (want name=score[:memory], such as desk=60:32GiB)", item, why)
	}
	name, value, ok := strings.Cut(item, "=")
	text, memory, hasMemory := strings.Cut(value, ":")
	switch {
	case name == "":
		return bad("no name")
	case !ok || text == "":
		return bad("no score")
	}
	score, err := parsePlain(text)
	if err != nil {
		return bad("the score is not a number")
	}
	d := Device{ID: name, Name: name, Score: score}
	if hasMemory {
		if d.Memory, err = ParseBytes(memory); err != nil {
			return bad(err.Error())
		}
	}
	return d, nil
}
