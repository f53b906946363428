package imports

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/confirm"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/backings"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// found is what a name on the command line stands for.
type found struct {
	// volume is a real volume of home, empty if the data is in a remote cluster.
	volume string
	// cluster and name are a claim there.
	cluster, name string
	// as is the name of the virtual claim.
	as string
	// done says that there is nothing to import, for it is so already.
	done bool
}

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
		_, err = fmt.Fprintf(i.streams.Out, "persistentvolumeclaim/%s is virtual already\n", name)
		return err
	case what.cluster != "":
		return i.fromRemote(ctx, what)
	}
	return i.fromHome(ctx, what)
}

// findClaim finds what the name of a claim stands for: that of a real claim, or
// that of a claim of an import that was stopped.
func (i *importing) findClaim(ctx context.Context, name string) (found, error) {
	if i.Cluster != "" {
		return found{cluster: i.Cluster, name: name, as: name}, nil
	}
	at := types.NamespacedName{Namespace: i.namespace, Name: name}
	claim, err := claimOf(ctx, i.home, at)
	if err != nil {
		return found{}, err
	}
	if claim != nil {
		if volume, ok := strings.CutPrefix(claim.Annotations[keys.Import], keys.Home+"/"); ok {
			volume, _, _ = strings.Cut(volume, "/")
			return found{volume: volume, as: name}, nil
		}
	}
	volume, err := i.recorded(ctx, func(r *Record) bool {
		return r.From.String() == at.String() || r.Claim.Namespace+"/"+r.Claim.Name == at.String()
	})
	if err != nil || volume != "" {
		return found{volume: volume, as: i.name(name)}, err
	}
	switch {
	case claim == nil:
		return found{}, fmt.Errorf("there is no claim %q in namespace %q: kubectl get pvc -n %s lists them", name, i.namespace, i.namespace)
	case claim.Spec.VolumeName == "":
		return found{}, outcome.Refuse("claim %s has no volume yet, so there is nothing to import: delete it and create it anew with the virtual class", at)
	}
	bound, err := volumeOf(ctx, i.home, claim.Spec.VolumeName)
	if err != nil {
		return found{}, err
	}
	if bound != nil && bound.Annotations[keys.Backing] != "" {
		return found{done: true}, nil
	}
	return found{volume: claim.Spec.VolumeName, as: i.name(name)}, nil
}

// findVolume finds what the name of a volume of home stands for.
func (i *importing) findVolume(ctx context.Context, name string) (found, error) {
	volume, err := volumeOf(ctx, i.home, name)
	if err != nil {
		return found{}, err
	}
	if volume == nil {
		real, err := i.recorded(ctx, func(r *Record) bool { return r.Old == name })
		if err == nil && real == "" {
			err = fmt.Errorf("there is no volume %q: kubectl get pv lists them; if an import of data in a remote cluster removed it, go on with kubectl lodestone import pvc NAME --cluster ID", name)
		}
		return found{volume: real}, err
	}
	as := volume.Name
	if ref := volume.Spec.ClaimRef; ref != nil && ref.Namespace != i.StorageNamespace {
		as = ref.Name
	}
	if volume.Annotations[keys.Backing] == "" {
		return found{volume: name, as: i.name(as)}, nil
	}
	ref, err := backings.RefOf(volume)
	if err != nil {
		return found{}, err
	}
	if err := mayGo(volume); err != nil {
		return found{}, err
	}
	if ref.Cluster != keys.Home {
		if i.As != "" && i.As != ref.Name {
			return found{}, outcome.Misuse("the claim in cluster %q keeps its name %q: leave out --as", ref.Cluster, ref.Name)
		}
		return found{cluster: ref.Cluster, name: ref.Name, as: ref.Name}, nil
	}
	return found{volume: volume.Annotations[keys.BackingVolume], as: i.name(as)}, nil
}

func (i *importing) name(other string) string {
	if i.As != "" {
		return i.As
	}
	return other
}

// recorded returns the real volume whose record fits, empty if none does.
func (i *importing) recorded(ctx context.Context, fits func(*Record) bool) (string, error) {
	volumes, err := i.home.Client.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", i.home.Explain("list volumes", err)
	}
	for _, volume := range volumes.Items {
		// One that cannot be read is another's trouble until it is named.
		if record, err := recordOf(&volume); err == nil && record != nil && fits(record) {
			return volume.Name, nil
		}
	}
	return "", nil
}

// fromHome imports a real volume of home, or goes on with that.
func (i *importing) fromHome(ctx context.Context, what found) error {
	target := types.NamespacedName{Namespace: i.namespace, Name: what.as}
	h, err := i.observe(ctx, what.volume, target)
	if err != nil {
		return err
	}
	if i.Undo {
		return i.undo(ctx, h)
	}
	if h.Record == nil {
		if err := h.Judge(i.class, target); err != nil {
			return err
		}
		if err := i.ready(ctx); err != nil {
			return err
		}
		if err := i.ask(target, h.Real); err != nil {
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

// ask has the user confirm.
func (i *importing) ask(target types.NamespacedName, real *corev1.PersistentVolume) error {
	size := real.Spec.Capacity[corev1.ResourceStorage]
	i.Say("Volume %s (%s, policy %s) is to be the data of virtual claim %s of class %q.\nThe claim that has it now goes; nothing is copied.",
		real.Name, size.String(), real.Spec.PersistentVolumeReclaimPolicy, target, i.Class)
	return confirm.Typed(i.streams.In, i.streams.ErrOut, i.Yes, target.Name)
}

// undo takes an import back, in one write, while nothing is lost by that.
func (i *importing) undo(ctx context.Context, h Home) error {
	switch {
	case h.Record == nil:
		return fmt.Errorf("no import of volume %s is under way: there is nothing to undo", h.Real.Name)
	case h.Claim != nil, h.Holder == nil && h.Record.From.UID != "", h.Holder != nil && h.Holder.DeletionTimestamp != nil:
		return outcome.Refuse("claim %s is gone or going, so the import can only go on: run the same command without --undo; the data is safe in volume %s", h.Record.From, h.Real.Name)
	}
	if err := i.patchVolume(ctx, h.Real, map[string]any{keys.Import: nil}, map[string]any{"persistentVolumeReclaimPolicy": h.Record.Policy}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(i.streams.Out, "the import of persistentvolume/%s is undone\n", h.Real.Name)
	return err
}
