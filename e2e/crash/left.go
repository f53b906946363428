package crash

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// nothingLeft says what there still is for the sake of a move.
func (w *World) nothingLeft(ctx context.Context, c *Case) error {
	var uids []string
	for _, uid := range c.moving.uids {
		uids = append(uids, string(uid))
	}
	ofIt := metav1.ListOptions{LabelSelector: keys.MoveOf + " in (" + strings.Join(uids, ",") + ")"}
	core := w.Bed.Home.Client().CoreV1()
	records, err := core.Secrets(fabric.System).List(ctx, ofIt)
	if err != nil || len(records.Items) > 0 {
		return errors.Join(errors.New("the records are not gone"), err)
	}
	if err := leftIn(ctx, core, keys.Home, fabric.Storage, ofIt); err != nil {
		return err
	}
	for _, remote := range w.remotes {
		if err := leftIn(ctx, remote.bed.West.Client().CoreV1(), remote.name, metav1.NamespaceAll, ofIt); err != nil {
			return err
		}
		shadows, err := remote.bed.Agents.ShadowPods(metav1.NamespaceAll).List(ctx, ofIt)
		if err != nil || len(shadows.Items) > 0 {
			return errors.Join(fmt.Errorf("ShadowPods of movers in %s are not gone", remote.name), err)
		}
	}
	return w.runsOnce(ctx, c)
}

// leftIn says what there still is of moves in a cluster; its movers are in a namespace, or
// in all.
func leftIn(ctx context.Context, core corev1client.CoreV1Interface, cluster, movers string, ofIt metav1.ListOptions) error {
	secrets, err := core.Secrets(movers).List(ctx, ofIt)
	if err != nil || len(secrets.Items) > 0 {
		return errors.Join(fmt.Errorf("the movers' keys in %s are not gone", cluster), err)
	}
	pods, err := core.Pods(movers).List(ctx, ofIt)
	if err != nil || len(pods.Items) > 0 {
		return errors.Join(fmt.Errorf("movers in %s are not gone", cluster), err)
	}
	claims, err := core.PersistentVolumeClaims(metav1.NamespaceAll).List(ctx, ofIt)
	if err != nil || len(claims.Items) > 0 {
		return errors.Join(fmt.Errorf("claims of the move in %s are not gone", cluster), err)
	}
	return nil
}

// runsOnce says whether not just one pod of the application runs, or one waits at the gate.
func (w *World) runsOnce(ctx context.Context, c *Case) error {
	apps, err := w.Bed.Home.Client().CoreV1().Pods(c.Namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list the pods of %s: %w", c.Namespace, err)
	}
	running := 0
	for i := range apps.Items {
		if slices.Contains(apps.Items[i].Spec.SchedulingGates, corev1.PodSchedulingGate{Name: keys.MovingGate}) {
			return fmt.Errorf("pod %s waits at the gate", apps.Items[i].Name)
		}
		if apps.Items[i].Status.Phase == corev1.PodRunning {
			running++
		}
	}
	if running != 1 {
		return fmt.Errorf("%d pods of the application run", running)
	}
	return nil
}
