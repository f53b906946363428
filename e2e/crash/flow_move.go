package crash

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	moveName = "move"
	// ballast lets a pass take seconds at the limit of the moves.
	ballast = 6 << 20
	limit   = "3Mi"
)

// counter is the application: it goes on counting from the last number in its log, and
// has each line on the disk before it counts on. With the number it writes who it is.
const counter = `n=$(tail -n 1 /data/log 2>/dev/null || true); n=${n%% *}; n=${n:-0}
while :; do n=$((n+1)); echo "$n $$" >> /data/log; sync /data/log; sleep 0.1; done`

// moveFlows move a volume, for a world with movers.
func moveFlows() []Flow {
	out := Flow{
		Name: "move-out", Reads: 1, Moves: true,
		Setup: deployCounter(fabric.Class, "home-1"), Ready: counterRuns(keys.Home), Act: moveTo(keys.Home, ""),
		Play: func(ctx context.Context, w *World, c *Case, _ *View) error { return w.watchMove(ctx, c) },
		Want: func(w *World, c *Case, v *View) error { return w.moved(c, v, "") },
	}
	abort := out
	abort.Name = "move-abort"
	abort.Want = func(w *World, c *Case, v *View) error { return w.movedWell(c, v) }
	abort.Play = func(ctx context.Context, w *World, c *Case, _ *View) error {
		if err := w.watchMove(ctx, c); err != nil || c.moving.over || c.moving.aborted {
			return err
		}
		if c.moving.status != string(v1alpha1.MovePreCopy) {
			return nil
		}
		_, err := w.moves.In(c.Namespace).Patch(ctx, moveName, types.MergePatchType, []byte(`{"spec":{"action":"Abort"}}`), metav1.PatchOptions{})
		c.moving.aborted = err == nil
		return err
	}
	// In west the claim's own name is taken until the move is over.
	within := out
	within.Name = "move-within"
	within.Setup, within.Ready, within.Act = deployCounter(choice, fabric.WestNode), counterRuns("west"), moveTo("west", fabric.WestNow)
	within.Want = func(w *World, c *Case, v *View) error { return w.moved(c, v, fabric.WestNow) }
	return []Flow{out, abort, within}
}

// target is the make target that runs a flow.
func target(flow string) string {
	if f, err := FlowOf(flow); err == nil && f.Moves {
		return "crash-move"
	}
	return "crash"
}

// deployCounter returns what makes a claim of a class, whose volume is first where a node
// is, and a Deployment that counts in it and may run anywhere.
func deployCounter(class, node string) func(context.Context, *World, *Case) error {
	return func(ctx context.Context, w *World, c *Case) error {
		if err := w.create(ctx, c, data, class, node); err != nil {
			return err
		}
		return w.deploy(ctx, c)
	}
}

func (w *World) deploy(ctx context.Context, c *Case) error {
	pod := fabric.NewPod(c.Namespace, "", data)
	pod.Spec.TerminationGracePeriodSeconds = ptr.To(int64(1))
	pod.Spec.Tolerations = append(pod.Spec.Tolerations, corev1.Toleration{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists})
	pod.Spec.Containers = []corev1.Container{{
		Name: "app", Image: processes.Shell, Command: []string{"sh", "-c", counter},
		VolumeMounts: []corev1.VolumeMount{{Name: data, MountPath: "/data"}},
	}}
	labels := map[string]string{"app": "counter"}
	_, err := w.Bed.Home.Client().AppsV1().Deployments(c.Namespace).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "counter"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod.Spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make a Deployment in %s: %w", c.Namespace, err)
	}
	return nil
}

// undeploy removes the Deployment of a case, if it has one.
func (w *World) undeploy(ctx context.Context, c *Case) error {
	if w.moves == nil {
		return nil
	}
	err := w.Bed.Home.Client().AppsV1().Deployments(c.Namespace).Delete(ctx, "counter", metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete the Deployment in %s: %w", c.Namespace, err)
	}
	return nil
}

func logOf(folder string) (string, error) {
	data, err := os.ReadFile(filepath.Join(folder, "log"))
	return string(data), err
}

// counterRuns returns what says whether the application counts in a cluster.
func counterRuns(cluster string) func(*World, *Case, *View) error {
	return func(w *World, c *Case, v *View) error {
		if err := w.bound(v, data, cluster); err != nil {
			return err
		}
		return w.counts(c, v)
	}
}

func (w *World) counts(c *Case, v *View) error {
	folder, err := w.Bed.Disks.Of(v.Reals[0])
	if err != nil {
		return err
	}
	log, err := logOf(folder)
	if err != nil {
		return fmt.Errorf("the application has written nothing: %w", err)
	}
	if lines, err := continues(log, ""); err != nil || lines < 3 {
		return errors.Join(errors.New("the application has hardly counted"), err)
	}
	c.moving.source = folder
	return nil
}

// moveTo returns what moves the volume of a case from a cluster to a real class of west,
// or to that of a new claim, and has nothing kept of the move.
func moveTo(from, class string) func(context.Context, *World, *Case) error {
	return func(ctx context.Context, w *World, c *Case) error { return w.moveOut(ctx, c, from, class) }
}

func (w *World) moveOut(ctx context.Context, c *Case, from, class string) error {
	fill := make([]byte, ballast)
	if _, err := rand.Read(fill); err != nil {
		return fmt.Errorf("make ballast: %w", err)
	}
	if err := os.WriteFile(filepath.Join(c.moving.source, "ballast"), fill, 0o600); err != nil {
		return fmt.Errorf("write ballast: %w", err)
	}
	made, err := w.moves.In(c.Namespace).Create(ctx, &v1alpha1.VolumeMove{
		ObjectMeta: metav1.ObjectMeta{Name: moveName},
		Spec: v1alpha1.VolumeMoveSpec{
			Claims: []string{data}, Target: v1alpha1.MoveTarget{Cluster: "west"}, ClassName: class,
			KeepSourceFor: &metav1.Duration{Duration: time.Second}, TTLSecondsAfterFinished: ptr.To(int32(1)),
			BandwidthLimit: ptr.To(resource.MustParse(limit)),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make a VolumeMove in %s: %w", c.Namespace, err)
	}
	w.ledger.owns(c.Namespace, made.UID, false)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.moving.uid, c.moving.from = made.UID, from
	c.kill = func(fault Fault) bool { return w.kill(context.WithoutCancel(ctx), c, fault) }
	return nil
}
