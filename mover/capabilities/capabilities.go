// Package capabilities checks that the mover may do what a copy needs.
package capabilities

import (
	"bufio"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// needed are the capabilities of a mover, and what would be lost without them.
var needed = []struct {
	bit  uint
	name string
}{
	{unix.CAP_CHOWN, "CHOWN"}, {unix.CAP_DAC_OVERRIDE, "DAC_OVERRIDE"}, {unix.CAP_FOWNER, "FOWNER"},
	{unix.CAP_FSETID, "FSETID"}, {unix.CAP_MKNOD, "MKNOD"}, {unix.CAP_SETFCAP, "SETFCAP"},
}

// Missing are the names of the capabilities that are needed and not in a set, as
// /proc/self/status gives it.
func Missing(effective uint64) []string {
	var missing []string
	for _, n := range needed {
		if effective&(1<<n.bit) == 0 {
			missing = append(missing, n.name)
		}
	}
	return missing
}

// Check returns an error unless this process is root and has all it needs: without
// one of them a copy would lose something without anybody noticing.
func Check() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("the mover runs as user %d and would lose owners and devices: let its pod run as user 0", os.Geteuid())
	}
	effective, err := effective()
	if err != nil {
		return err
	}
	if missing := Missing(effective); len(missing) > 0 {
		return fmt.Errorf("the mover lacks the capabilities %s and would lose what they are for: add them to its container's securityContext",
			strings.Join(missing, ", "))
	}
	return nil
}

func effective() (uint64, error) {
	file, err := os.Open("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("read the mover's capabilities: %w", err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		if value, found := strings.CutPrefix(lines.Text(), "CapEff:"); found {
			return strconv.ParseUint(strings.TrimSpace(value), 16, 64)
		}
	}
	return 0, fmt.Errorf("read the mover's capabilities: %w", os.ErrNotExist)
}
