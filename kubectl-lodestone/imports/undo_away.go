package imports

import (
	"context"
	"fmt"
	"slices"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// The steps that take an import from a remote cluster back.
const (
	// Unmark lets go of the claim there.
	Unmark Step = "Unmark"
	// Unmake deletes the virtual claim, which has no volume.
	Unmake Step = "Unmake"
)

// Back returns the next step of taking an import back, which goes until there is
// a virtual volume. The claim there is let go first: a virtual claim must not be
// deleted while one there is said to be its own. It is pure.
func (a Away) Back() (Step, error) {
	name := a.Shadow.Namespace + "/" + a.Shadow.Name
	made := a.Claim != nil && a.ours()
	switch home := a.Shadow.Labels[keys.HomeID]; {
	case home != "" && home != a.HomeID:
		return "", outcome.Refuse("claim %s in cluster %q belongs to home cluster %q: no import of this home is to undo", name, a.Cluster, home)
	case made && a.Virtual != nil:
		return "", outcome.Refuse("claim %s has its volume, so the import can only go on: run the same command without --undo; to have the data no longer at home, delete the virtual claim, with policy Retain", a.Target)
	case a.Owner != nil && !made:
		return "", outcome.Refuse("claim %s in cluster %q is that of virtual claim %s: there is nothing to undo", name, a.Cluster, a.Target)
	case a.Shadow.DeletionTimestamp != nil:
		return "", outcome.Refuse("claim %s in cluster %q is being deleted, and its data would go if the import let go of it: copy the data, or have its volume kept with policy Retain and take the finalizer %s off", name, a.Cluster, keys.BackingFinalizer)
	case a.Shadow.Annotations[keys.Import] == a.HomeID:
		return Unmark, nil
	case made && home == a.HomeID:
		return "", outcome.Refuse("claim %s in cluster %q was kept there for this home before, so the import can only go on: run the same command without --undo", name, a.Cluster)
	case made && a.Claim.DeletionTimestamp == nil:
		return Unmake, nil
	}
	return Done, nil
}

// undoAway takes an import from a remote cluster back.
func (i *importing) undoAway(ctx context.Context, a Away) error {
	at := a.Shadow.Namespace + "/" + a.Shadow.Name
	for began := false; ; began = true {
		step, err := a.Back()
		switch {
		case err != nil:
			return err
		case step == Done && !began:
			return fmt.Errorf("no import of claim %s in cluster %q is under way that could be undone", at, a.Cluster)
		case step == Done:
			_, err := fmt.Fprintf(i.streams.Out, "the import of persistentvolumeclaim/%s is undone\n", a.Shadow.Name)
			return err
		case step == Unmark:
			kept := slices.DeleteFunc(slices.Clone(a.Shadow.Finalizers), func(f string) bool { return f == keys.BackingFinalizer })
			err = i.patchShadow(ctx, a.Shadow, map[string]any{
				"finalizers": kept, "labels": map[string]any{keys.HomeID: nil, keys.ClaimUID: nil},
				"annotations": map[string]any{keys.Claim: nil, keys.Import: nil},
			})
		case step == Unmake:
			claims := i.home.Client.CoreV1().PersistentVolumeClaims(a.Claim.Namespace)
			err = i.home.Explain("delete claim "+a.Target.String(), claims.Delete(ctx, a.Claim.Name, just(a.Claim)))
		}
		if err != nil && !changed(err) {
			return err
		}
		if a, err = i.observeAway(ctx, a.Cluster, backings.RefTo(a.Cluster, a.Shadow).Key()); err != nil {
			return err
		}
	}
}
