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
func NewMovesWorld(ctx context.Context, say func(format string, args ...any)) (_ *World, err error) {
	w := newWorld(say)
	w.limits = ofMoves
	mover, err := fabric.BuildMover(ctx)
	if err != nil {
		return nil, err
	}
	if w.Bed, err = fabric.Start(ctx, fabric.Options{
		ControllerManagerQPS: 500, Agent: true, VirtualNode: true, Programs: map[string]string{moverImage: mover},
	}); err != nil {
		return nil, err
	}
	if err := w.prepareMoves(ctx); err != nil {
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
	// Each case leaves a namespace there.
	kubeconfig, err := w.Bed.Tenant(ctx, func(home *remotev1alpha1.HomeCluster) { home.Spec.Namespaces.Maximum = 5000 })
	if err != nil {
		return err
	}
	if err := w.open(ctx, kubeconfig); err != nil {
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

// awaitPlace waits until the remote agent has given a case its namespace: a claim that waits
// for long would be sent elsewhere.
func (w *World) awaitPlace(ctx context.Context, c *Case) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.limits.setUp, fmt.Errorf("west has not given namespace %s", c.Namespace))
	defer cancel()
	for ctx.Err() == nil {
		requests, err := w.Bed.Agents.NamespaceRequests(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: metav1.ObjectNameField + "=" + c.Namespace})
		if err != nil {
			return fmt.Errorf("look at the request for namespace %s: %w", c.Namespace, err)
		}
		for i := range requests.Items {
			if meta.IsStatusConditionTrue(requests.Items[i].Status.Conditions, remotev1alpha1.Ready) {
				return nil
			}
		}
		time.Sleep(w.limits.often)
	}
	return context.Cause(ctx)
}
