package imports

import (
	"context"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

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
	// backing is the UID that this claim must have, empty for any.
	backing types.UID
	// as is the name of the virtual claim.
	as string
	// done says that there is nothing to import, for it is so already.
	done bool
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
		return found{cluster: ref.Cluster, name: ref.Name, backing: ref.UID, as: ref.Name}, nil
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
