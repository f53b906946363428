package crash

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// dataPort is where movers wait for each other.
const dataPort = 8440

// mover is one that runs.
type mover struct {
	*corev1.Pod
	pods *processes.Processes
}

// hurt has a fault of the movers of a case happen, and says whether there was what it is
// about. What it kills is started again on its node.
func (w *World) hurt(ctx context.Context, c *Case, fault Fault) bool {
	c.mu.Lock()
	uid, t := c.moving.uids[len(c.moving.uids)-1], c.moving.trip
	c.mu.Unlock()
	source := w.mover(ctx, t.from, fmt.Sprintf("move-%s-0-source", uid), fmt.Sprintf("move-%s-0-snapshot", uid))
	target := w.mover(ctx, t.to, fmt.Sprintf("move-%s-%d-target", uid, len(t.claims)-1))
	switch {
	case fault == KillSource && source != nil:
		source.pods.Kill(source.Namespace, source.Name)
	case fault == KillReceiver && target != nil:
		target.pods.Kill(target.Namespace, target.Name)
	case fault == CutStream && target != nil:
		return cut(ctx, target.Status.PodIP)
	default:
		return false
	}
	return true
}

// mover returns the first mover that runs in a cluster under one of some names; nil: none.
func (w *World) mover(ctx context.Context, in string, names ...string) *mover {
	cluster, pods := w.Bed.Home, w.Bed.HomePods
	if in != keys.Home {
		there := w.remote(in)
		cluster, pods = there.bed.West, there.bed.WestPods
	}
	all, err := cluster.Client().CoreV1().Pods("").List(ctx, metav1.ListOptions{LabelSelector: keys.MoveOf})
	if err != nil {
		return nil
	}
	for i := range all.Items {
		pod := &all.Items[i]
		for _, name := range names {
			if pod.Name == name && pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				return &mover{pod, pods}
			}
		}
	}
	return nil
}

// cut ends all connections over which data comes to a mover, and says whether there was
// one: whoever dialled it, and the mover, find them reset.
func cut(ctx context.Context, address string) bool {
	out, err := exec.CommandContext(ctx, "ss", "--kill", "--no-header", "--tcp", "--numeric", "state", "established",
		fmt.Sprintf("dst %s and dport = %d", address, dataPort)).Output()
	return err == nil && strings.TrimSpace(string(out)) != ""
}
