package sidecars

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Fault is a failure of a call to the driver.
type Fault struct {
	// Code is that of the answer, as RESOURCE_EXHAUSTED; empty: the call does not fail.
	Code string `json:"code,omitempty"`
	// Message goes with the code.
	Message string `json:"message,omitempty"`
	// Delay is how long the call takes before anything else, as 2s.
	Delay string `json:"delay,omitempty"`
	// Done has the call do its work before it fails, as when an answer is lost.
	Done bool `json:"done,omitempty"`
}

// Fail has each call of a method, as CreateVolume, fail until Heal.
func (d *Driver) Fail(method string, fault Fault) error { return d.order(method, fault) }

// FailNext has the next calls of a method fail, each as one of the faults says,
// in that order.
func (d *Driver) FailNext(method string, faults ...Fault) error {
	for i, fault := range faults {
		if err := d.order(fmt.Sprintf("%s.%03d", method, i), fault); err != nil {
			return err
		}
	}
	return nil
}

// Heal takes back all that was ordered for a method.
func (d *Driver) Heal(method string) error {
	once, err := filepath.Glob(filepath.Join(d.faults(), method+".*"))
	if err != nil {
		return err
	}
	for _, path := range append(once, filepath.Join(d.faults(), method)) {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("take back the failures of %s: %w", method, err)
		}
	}
	return nil
}

// Ordered reports whether failures ordered by FailNext have not happened yet.
func (d *Driver) Ordered(method string) (bool, error) {
	once, err := filepath.Glob(filepath.Join(d.faults(), method+".*"))
	return len(once) > 0, err
}

// Ended returns how many calls of a method have ended, well or badly, since Start.
func (d *Driver) Ended(method string) (int, error) {
	calls, err := os.ReadFile(filepath.Join(d.directory, "calls"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, fmt.Errorf("read which calls driver %s has had: %w", d.Name, err)
	}
	return strings.Count("\n"+string(calls), "\n"+method+" "), nil
}

func (d *Driver) faults() string { return filepath.Join(d.directory, "faults") }

// order writes an order in one step: the driver reads it at any time.
func (d *Driver) order(name string, fault Fault) error {
	content, err := json.Marshal(fault)
	if err != nil {
		return err
	}
	path := filepath.Join(d.faults(), name)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		return fmt.Errorf("order a failure of %s: %w", name, err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("order a failure of %s: %w", name, err)
	}
	return nil
}
