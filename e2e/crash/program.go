package crash

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// readyTimeout bounds the start of a program, leadTimeout how long a replica may
// wait for a lease that is not renewed.
const (
	readyTimeout = 30 * time.Second
	leadTimeout  = 30 * time.Second
)

// errDeposed is the error of a program that lost its lease and therefore ended, as it
// must: on a machine that is too busy to renew it in time. That says nothing of a case.
var errDeposed = errors.New("it lost its lease")

// endOf is the error of a program that ended by itself.
func endOf(program *testbed.Program) error {
	output, err := program.Output()
	if err == nil && strings.Contains(output, "leadership was lost") {
		return fmt.Errorf("%s ended by itself: %w", program.Name(), errDeposed)
	}
	return errors.Join(fmt.Errorf("%s ended by itself", program.Name()), err)
}

// lead makes west be reached through a gate.
func (w *World) lead(ctx context.Context, gate int) error {
	patch, err := json.Marshal(map[string]any{"data": map[string][]byte{"kubeconfig": w.kubeconfigs[gate]["west"]}})
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	if _, err := w.Bed.Home.Client().CoreV1().Secrets(fabric.System).Patch(ctx, "west", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("lead to west through gate %d: %w", gate, err)
	}
	return nil
}

// awaitLeader waits until a program leads.
func awaitLeader(ctx context.Context, program *testbed.Program) error {
	for deadline := time.Now().Add(leadTimeout); ; time.Sleep(often) {
		leads, err := fabric.Leads(program)
		switch {
		case err != nil:
			return err
		case leads:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case time.Now().After(deadline):
			return fmt.Errorf("%s does not lead after %v", program.Name(), leadTimeout)
		}
	}
}
