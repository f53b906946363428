package imports

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/confirm"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func (i *importing) run(ctx context.Context, kind, name string) error {
	var err error
	if i.homeID, err = i.home.HomeID(ctx, i.Namespace); err != nil {
		return err
	}
	if i.Class != "" {
		if err := i.readClass(ctx); err != nil {
			return err
		}
	}
	find := i.findClaim
	if kind == "pv" {
		find = i.findVolume
	}
	what, err := find(ctx, name)
	switch {
	case err != nil:
		return err
	case what.done:
		return i.already(name)
	case what.cluster != "":
		return i.fromRemote(ctx, what)
	}
	return i.fromHome(ctx, what)
}

// fromHome imports a real volume of home, or goes on with that.
func (i *importing) fromHome(ctx context.Context, what found) error {
	target := types.NamespacedName{Namespace: i.namespace, Name: what.as}
	h, err := i.observe(ctx, what.volume, target)
	if err != nil {
		return err
	}
	h.Chosen = i.chosen
	if i.Undo {
		return i.undo(ctx, h)
	}
	if h.over(target) {
		return i.already(target.Name)
	}
	if h.Record == nil {
		if err := h.Judge(i.class, target); err != nil {
			return err
		}
		if err := i.ready(ctx); err != nil {
			return err
		}
		claim := virtualClaim(target, i.Class, homeID(h.Real), h.Holder, h.Real)
		if err := i.tryAll(ctx, claim, h.Real, h.Holder); err != nil {
			return err
		}
		goes := "Nothing is copied."
		if h.Holder != nil {
			goes = fmt.Sprintf("Claim %s/%s, which has it now, is deleted; nothing is copied.", h.Holder.Namespace, h.Holder.Name)
		}
		if err := i.ask(target, h.Real, h.origin(), goes); err != nil {
			return err
		}
		if h.Record, err = i.begin(ctx, h, target); err != nil {
			return err
		}
	} else {
		i.Say("going on with the import of volume %s", h.Real.Name)
		i.Class = *h.Record.Claim.Spec.StorageClassName
		if err := i.readClass(ctx); err != nil {
			return err
		}
	}
	if err := i.atHome(ctx, what.volume); err != nil {
		return err
	}
	_, err = fmt.Fprintf(i.streams.Out, "persistentvolumeclaim/%s imported\n", h.Record.Claim.Name)
	return err
}

func (i *importing) already(claim string) error {
	_, err := fmt.Fprintf(i.streams.Out, "persistentvolumeclaim/%s is virtual already\n", claim)
	return err
}

// ready says whether the namespaces are there in which claims are to be made.
func (i *importing) ready(ctx context.Context) error {
	for _, name := range []string{i.namespace, i.StorageNamespace} {
		namespace, err := i.home.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return outcome.Refuse("there is no namespace %q in the cluster of context %q: create it, or give -n or --storage-namespace", name, i.home.Context)
		case err != nil:
			return i.home.Explain("get namespace "+name, err)
		case namespace.DeletionTimestamp != nil:
			return outcome.Refuse("namespace %q is being deleted: nothing can be made there", name)
		}
	}
	return nil
}

// begin records the import on the real volume.
func (i *importing) begin(ctx context.Context, h Home, target types.NamespacedName) (*Record, error) {
	record := &Record{Policy: h.Real.Spec.PersistentVolumeReclaimPolicy, Claim: virtualClaim(target, i.Class, homeID(h.Real), h.Holder, h.Real)}
	if h.Holder != nil {
		record.From = Holder{Namespace: h.Holder.Namespace, Name: h.Holder.Name, UID: h.Holder.UID}
	}
	if h.Old != nil {
		record.Old = h.Old.Name
	}
	text, err := record.text()
	if err != nil {
		return nil, err
	}
	err = i.patchVolume(ctx, h.Real, map[string]any{keys.Import: text}, map[string]any{"persistentVolumeReclaimPolicy": corev1.PersistentVolumeReclaimRetain})
	if err == nil {
		i.Say("volume %s is kept while it is imported", h.Real.Name)
	}
	return record, err
}

// ask has the user confirm: whose data is to be that of which claim, and what
// becomes of the one that has it.
func (i *importing) ask(target types.NamespacedName, real *corev1.PersistentVolume, from types.NamespacedName, goes string) error {
	size := real.Spec.Capacity[corev1.ResourceStorage]
	i.Say("Volume %s (%s, policy %s) is to be the data of virtual claim %s of class %q.",
		real.Name, size.String(), real.Spec.PersistentVolumeReclaimPolicy, target, i.Class)
	if from.Namespace != "" && from.Namespace != target.Namespace {
		i.Say("It is the data of claim %s: who may use namespace %s gets it.", from, target.Namespace)
	}
	i.Say("%s", goes)
	return confirm.Typed(i.streams.In, i.streams.ErrOut, i.Yes, target.Name)
}

// undo takes an import back, in one write, while nothing is lost by that.
func (i *importing) undo(ctx context.Context, h Home) error {
	if h.Record == nil {
		return fmt.Errorf("no import of volume %s is under way: there is nothing to undo", h.Real.Name)
	}
	if err := h.undoable(); err != nil {
		return err
	}
	if err := i.patchVolume(ctx, h.Real, map[string]any{keys.Import: nil}, map[string]any{"persistentVolumeReclaimPolicy": h.Record.Policy}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(i.streams.Out, "the import of persistentvolume/%s is undone\n", h.Real.Name)
	return err
}
