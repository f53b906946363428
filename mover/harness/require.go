package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"testing"

	"github.com/lodestone-storage/lodestone/mover/engine"
)

// CompleteVariable is the environment variable that forbids to skip tests of movers, if
// it is 1.
const CompleteVariable = "LODESTONE_COMPLETE"

// Require skips a test that runs movers where none can run, and says what is missing.
// Where all tests must run the test fails instead.
func Require(t testing.TB) {
	t.Helper()
	err := missing(os.Geteuid())
	switch {
	case err == nil:
	case os.Getenv(CompleteVariable) == "1":
		t.Fatalf("%v (%s=1 lets no test be skipped)", err, CompleteVariable)
	default:
		t.Skip(err)
	}
}

// missing says all that movers lack here to run for a user.
func missing(user int) (err error) {
	if user != 0 {
		err = fmt.Errorf("needs root: movers keep owners, modes and devices, and this is user %d", user)
	}
	if lacking := engine.Installed(); lacking != nil {
		err = errors.Join(err, fmt.Errorf("needs rsync: %w", lacking))
	}
	if _, lacking := exec.LookPath("setpriv"); lacking != nil {
		err = errors.Join(err, fmt.Errorf("needs setpriv, to run movers with the capabilities of their containers: %w", lacking))
	}
	return err
}
