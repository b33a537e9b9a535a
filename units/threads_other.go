//go:build !linux

package units

import "time"

func processors() []int32 { return nil }

func processor() int32 { return -1 }

func moveTo(int32) {}

func keep(func() time.Time) {}
