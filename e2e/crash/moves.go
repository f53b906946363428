package crash

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumemoves"
)

// moverImage is what the provisioner calls the mover's image by default.
const moverImage = "lodestone-mover"

// NewMovesWorld starts control planes with all programs of Lodestone, on which pods and
// movers really run; it is for the flows that move volumes, and for no others.
func NewMovesWorld(ctx context.Context, say func(format string, args ...any)) (*World, error) {
	return newMovesWorld(ctx, say, false)
}

// NewWideWorld is NewMovesWorld with a second remote cluster.
func NewWideWorld(ctx context.Context, say func(format string, args ...any)) (*World, error) {
	return newMovesWorld(ctx, say, true)
}

func newMovesWorld(ctx context.Context, say func(format string, args ...any), wide bool) (*World, error) {
	mover, err := fabric.BuildMover(ctx)
	if err != nil {
		return nil, err
	}
	programs := map[string]string{moverImage: mover}
	w, err := newWorld(ctx, say, fabric.Options{Agent: true, VirtualNode: true, Programs: programs})
	if err != nil {
		return nil, err
	}
	w.limits = ofMoves
	if wide {
		err = w.joinEast(ctx, programs)
	}
	if err == nil {
		err = w.prepareMoves(ctx)
	}
	if err != nil {
		w.Stop()
		return nil, err
	}
	return w, nil
}

func (w *World) prepareMoves(ctx context.Context) (err error) {
	if w.moves, err = volumemoves.NewClient(w.Bed.Home.AdminConfig()); err != nil {
		return err
	}
	if err := w.takeForMoves(ctx); err != nil {
		return err
	}
	if _, err := w.Bed.StartExtender(ctx); err != nil {
		return err
	}
	if _, err := w.Bed.StartAgent(ctx); err != nil {
		return err
	}
	kubeconfigs, err := w.serveHome(ctx)
	if err != nil {
		return err
	}
	if err := w.open(ctx, kubeconfigs); err != nil {
		return err
	}
	for name, parameters := range map[string]map[string]string{
		choice: {keys.Classes: fabric.WestWait + "," + fabric.WestNow},
		either: {keys.LocalClass: fabric.HomeWait, keys.RemoteClass: fabric.WestNow},
	} {
		if err := w.makeClass(ctx, name, parameters); err != nil {
			return err
		}
	}
	_, err = w.Bed.StartVirtualNode(ctx)
	return err
}

func (w *World) newHomeNamespace(ctx context.Context, c *Case) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.Namespace, Labels: map[string]string{keys.Offload: keys.OffloadEnabled}}}
	if _, err := w.Bed.Home.Client().CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make namespace %s of home: %w", c.Namespace, err)
	}
	return nil
}

// awaitPlaces waits until the remote agents have given a case its namespaces: a claim that
// waits for long would be sent elsewhere.
func (w *World) awaitPlaces(ctx context.Context, c *Case) error {
	for _, remote := range w.remotes {
		if err := remote.awaitPlace(ctx, c, w.limits); err != nil {
			return err
		}
	}
	return nil
}

func (r *remote) awaitPlace(ctx context.Context, c *Case, l limits) error {
	ctx, cancel := context.WithTimeoutCause(ctx, l.setUp, fmt.Errorf("%s has not given namespace %s", r.name, c.Namespace))
	defer cancel()
	for ctx.Err() == nil {
		requests, err := r.bed.Agents.NamespaceRequests(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: metav1.ObjectNameField + "=" + c.Namespace})
		if err != nil {
			return fmt.Errorf("look at the request for namespace %s: %w", c.Namespace, err)
		}
		for i := range requests.Items {
			if meta.IsStatusConditionTrue(requests.Items[i].Status.Conditions, remotev1alpha1.Ready) {
				return nil
			}
		}
		time.Sleep(l.often)
	}
	return context.Cause(ctx)
}
