package app

import (
	"os"
	"runtime/debug"
)

// garbage is how much garbage, in percent of what is in use, is let be before it is
// collected. Most of what is in use is the caches, which hardly change: Go's default
// of 100 would need twice their size.
const garbage = 24

// limitGarbage sets that for the whole process, unless GOGC says otherwise.
func limitGarbage() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(garbage)
	}
}
