package decide_test

import (
	"runtime/debug"
	"testing"
)

// TestMain has little memory collected: the models make many small objects and keep few, and collecting them takes longer than they do.
func TestMain(m *testing.M) {
	debug.SetGCPercent(800)
	m.Run()
}
