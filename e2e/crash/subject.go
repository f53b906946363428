package crash

import (
	"context"
	"fmt"
	"strings"

	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
)

// Subject is a program whose calls count in a flow and meet its faults. It is the
// beginning of the name that the program has in its requests.
type Subject string

// The programs. The plugin runs inside this process: it keeps nothing but what it has
// written, so that one whose requests are all refused from a call on is like one that
// was killed there.
const (
	Provisioner Subject = "lodestone-provisioner"
	Agent       Subject = "lodestone-remote-agent"
	Plugin      Subject = "kubectl-lodestone"
)

// subject is the program of a flow.
func (f *Flow) subject() Subject {
	if f.Of == "" {
		return Provisioner
	}
	return f.Of
}

// start starts a replica of the program that meets the faults behind a gate: the
// provisioner, or the remote agent in a world of flows of that. Its lease, if it elects
// a leader, is short.
func (w *World) start(ctx context.Context, gate int, elect bool) (*testbed.Program, error) {
	w.started++
	cluster, of, binary := w.Bed.Home, "home", w.binary
	flags := []string{"--probe-interval=1s", "--refusal-period=15s", "--forced-deletion-margin=1s", "--move-settling=2s", "--mover-networks=" + processes.Network, "--workers=64"}
	if w.agent != "" {
		cluster, of, binary, flags = w.Bed.West, "agent", w.agent, []string{"--settle-time=1s"}
	}
	name := fmt.Sprintf("%s-%d", strings.TrimPrefix(binary[strings.LastIndex(binary, "/")+1:], "lodestone-"), w.started)
	kubeconfig, err := cluster.WriteFile(fmt.Sprintf("gate-%d.kubeconfig", gate), w.kubeconfigs[gate][of])
	if err != nil {
		return nil, err
	}
	address := w.addresses[gate-1]
	flags = append(flags, "--kubeconfig="+kubeconfig, "--http-address="+address, fmt.Sprintf("--leader-elect=%v", elect), "--lease-duration=8s", "--v=3")
	program, err := cluster.StartProgram(name, binary, flags...)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyTimeout, fmt.Errorf("not ready after %v", readyTimeout))
	defer cancel()
	if err := program.AwaitHTTP(ctx, "http://"+address+"/readyz"); err != nil {
		program.Kill()
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return program, nil
}
