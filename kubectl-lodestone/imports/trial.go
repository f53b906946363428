package imports

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/outcome"
	"github.com/lodestone-storage/lodestone/pkg/backings"
)

// tryAll has home's API server say whether it would take the claims of an import
// at home. freed is the claim that goes before, nil for none.
func (i *importing) tryAll(ctx context.Context, claim *corev1.PersistentVolumeClaim, real *corev1.PersistentVolume, freed *corev1.PersistentVolumeClaim) error {
	if err := i.try(ctx, claim, freed); err != nil {
		return err
	}
	// The virtual claim has no UID yet: another one names the twin.
	owner := reference(claim)
	owner.UID = uuid.NewUUID()
	at := types.NamespacedName{Namespace: i.StorageNamespace, Name: "pvc-" + string(owner.UID)}
	return i.try(ctx, backings.Twin(owner, real, at, i.homeID), freed)
}

// try has home's API server say whether it would take a claim; none is made. Only
// the name is another while freed has it.
func (i *importing) try(ctx context.Context, claim, freed *corev1.PersistentVolumeClaim) error {
	trial := claim.DeepCopy()
	near := freed != nil && freed.Namespace == claim.Namespace
	if near && freed.Name == claim.Name {
		trial.Name, trial.GenerateName = "", "import-"
	}
	_, err := i.home.Client.CoreV1().PersistentVolumeClaims(trial.Namespace).Create(ctx, trial, metav1.CreateOptions{FieldManager: fieldManager, DryRun: []string{metav1.DryRunAll}})
	name := claim.Namespace + "/" + claim.Name
	switch {
	case untriable(err):
		i.Say("whether claim %s may be made is not known before: %v", name, err)
		return nil
	case near && full(err):
		quotas, listed := i.home.Client.CoreV1().ResourceQuotas(claim.Namespace).List(ctx, metav1.ListOptions{})
		if listed == nil && fits(quotas.Items, claim, freed) {
			return nil
		}
	}
	if denied(err) {
		return outcome.Refuse("claim %s may not be made, so nothing was changed: %w; see that it may be, then run the same command again", name, err)
	}
	return i.home.Explain("create claim "+name, err)
}

// untriable says that something which has a say in what is created cannot be asked
// without creating it.
func untriable(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run")
}

// denied says that the cluster does not take an object as it is, whoever makes it.
func denied(err error) bool {
	if apierrors.IsForbidden(err) {
		// The other kind is that the user lacks the right.
		return !strings.Contains(err.Error(), " cannot create resource ")
	}
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

// full says that a quota leaves no room.
func full(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// fits says whether quotas leave room for a claim once another one of its
// namespace is gone. It is pure.
func fits(quotas []corev1.ResourceQuota, claim, freed *corev1.PersistentVolumeClaim) bool {
	takes, gives := charges(claim), charges(freed)
	for _, quota := range quotas {
		for name, hard := range quota.Spec.Hard {
			asked, ok := takes[name]
			if !ok {
				continue
			}
			used := quota.Status.Used[name].DeepCopy()
			used.Sub(gives[name])
			used.Add(asked)
			if used.Cmp(hard) > 0 {
				return false
			}
		}
	}
	return true
}

// charges is what a claim counts for in quotas.
func charges(claim *corev1.PersistentVolumeClaim) corev1.ResourceList {
	one, size := resource.MustParse("1"), claim.Spec.Resources.Requests[corev1.ResourceStorage]
	all := corev1.ResourceList{
		corev1.ResourcePersistentVolumeClaims:            one,
		"count/" + corev1.ResourcePersistentVolumeClaims: one,
		corev1.ResourceRequestsStorage:                   size,
	}
	if class := claim.Spec.StorageClassName; class != nil {
		prefix := corev1.ResourceName(*class + ".storageclass.storage.k8s.io/")
		all[prefix+corev1.ResourcePersistentVolumeClaims] = one
		all[prefix+corev1.ResourceRequestsStorage] = size
	}
	return all
}
