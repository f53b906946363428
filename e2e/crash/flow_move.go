package crash

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

var (
	outward  = trip{class: fabric.Class, node: "home-1", from: keys.Home, to: "west", claims: []string{data}}
	homeward = trip{class: either, node: fabric.WestNode, from: "west", to: keys.Home, claims: []string{data}}
)

// moveFlows move volumes, for a world with movers.
func moveFlows() []Flow {
	group, block := outward, outward
	group.claims, block.block = []string{data, more}, true
	// In west the claim's own name is taken until the move is over.
	between := trip{class: either, node: fabric.WestNode, from: "west", to: east, claims: []string{data}}
	within := trip{class: choice, node: fabric.WestNode, from: "west", to: "west", real: fabric.WestNow, claims: []string{data}}
	return []Flow{
		outward.lied("move-out"), homeward.flow("move-home"), within.flow("move-within"), group.flow("move-group"), block.flow("move-block"),
		outward.aborted("move-abort", abortion{phase: string(v1alpha1.MovePreCopy), object: "volumemove.status"}),
		// Then the virtual volume is about to be deleted, or is gone.
		outward.aborted("move-abort-fence", abortion{phase: string(v1alpha1.MoveFence), object: "volume"}),
		outward.aborted("move-abort-final", abortion{phase: string(v1alpha1.MoveFinalSync), object: "volumemove.status"}),
		rolledBack("move-rollback"), outward.snapshotted("move-snapshot"), outward.stored("move-store"), between.wide("move-between"),
	}
}

// target is the make target that runs a flow.
func target(flow string) string {
	if f, err := FlowOf(flow); err == nil && f.Moves {
		return "crash-move"
	}
	return "crash"
}

// lied is a flow of moves in which the remote cluster lies too.
func (t trip) lied(name string) Flow {
	f := t.flow(name)
	f.Lied = true
	return f
}

// wide is a flow of moves between remote clusters.
func (t trip) wide(name string) Flow {
	f := t.flow(name)
	f.Wide = true
	return f
}

// aborted is a flow of moves that their user aborts.
func (t trip) aborted(name string, when abortion) Flow {
	f := t.flow(name)
	f.Act = func(ctx context.Context, w *World, c *Case) error {
		at := when
		at.ask = func() error { return w.ask(context.WithoutCancel(ctx), c, v1alpha1.ActionAbort) }
		c.mu.Lock()
		c.moving.abort = &at
		c.mu.Unlock()
		return w.begin(ctx, c, moveName, t)
	}
	f.Want = func(w *World, c *Case, v *View) error { return w.stayed(c, v, t) }
	return f
}

// ask has the user ask for an action of the move that goes on.
func (w *World) ask(ctx context.Context, c *Case, action v1alpha1.MoveAction) error {
	patch := fmt.Appendf(nil, `{"spec":{"action":%q}}`, action)
	if _, err := w.moves.In(c.Namespace).Patch(ctx, c.moving.name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("ask for %s of VolumeMove %s: %w", action, c.moving.name, err)
	}
	return nil
}

// rolledBack is a flow of a move that is rolled back as kubectl lodestone does it: the copy
// that was kept is removed, and another move takes the data back.
func rolledBack(name string) Flow {
	there, back := outward, homeward
	there.class, there.keep, back.class = either, time.Hour, either
	f := there.flow(name)
	f.Setup = func(ctx context.Context, w *World, c *Case) error {
		if err := there.deploy(ctx, w, c); err != nil {
			return err
		}
		err := w.awaitCase(ctx, c, func(v *View) error { return w.counts(c, v, there.from) })
		if err != nil {
			return err
		}
		if err := w.begin(ctx, c, moveName, there); err != nil {
			return err
		}
		return w.awaitCase(ctx, c, func(v *View) error {
			if err := w.watchMove(ctx, c, v); err != nil || c.moving.status == string(v1alpha1.MoveRetain) {
				return err
			}
			return fmt.Errorf("the move is in phase %s: %s", c.moving.status, c.moving.why)
		})
	}
	f.Ready = func(w *World, c *Case, v *View) error { return w.countsAmong(c, v, there.to) }
	f.Act = func(ctx context.Context, w *World, c *Case) error { return w.ask(ctx, c, v1alpha1.ActionFinalize) }
	f.Play = func(ctx context.Context, w *World, c *Case, v *View) error {
		if len(c.moving.uids) > 1 {
			return w.watchMove(ctx, c, v)
		}
		if _, err := w.moves.In(c.Namespace).Get(ctx, moveName, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return err
		}
		return w.begin(ctx, c, "back", back)
	}
	f.Want = func(w *World, c *Case, v *View) error { return w.movedTo(c, v, back) }
	return f
}
