package imports

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/virtualclass"
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
		return i.printAlreadyVirtual(name)
	case what.cluster != "":
		return i.fromRemote(ctx, what)
	}
	return i.fromHome(ctx, what)
}

// fromHome imports a real volume of home, or continues an import of it.
func (i *importing) fromHome(ctx context.Context, what source) error {
	target := types.NamespacedName{Namespace: i.namespace, Name: what.as}
	h, err := i.observe(ctx, what.volume, target)
	if err != nil {
		return err
	}
	h.NamespaceGiven = i.namespaceGiven
	if i.Undo {
		return i.undo(ctx, h)
	}
	if h.isDone(target) {
		return i.printAlreadyVirtual(target.Name)
	}
	if h.Record == nil {
		if err := h.Check(i.class, target); err != nil {
			return err
		}
		if err := i.checkNamespaces(ctx); err != nil {
			return err
		}
		claim := virtualClaim(target, i.Class, homeID(h.Real), h.Holder, h.Real)
		if err := i.dryRunClaims(ctx, claim, h.Real, h.Holder); err != nil {
			return err
		}
		goes := "Nothing is copied."
		if h.Holder != nil {
			goes = fmt.Sprintf("Claim %s/%s, which has it now, is deleted; nothing is copied.", h.Holder.Namespace, h.Holder.Name)
		}
		if err := i.confirm(ctx, target, h.Real, h.origin(), goes); err != nil {
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
	if err := i.importAtHome(ctx, what.volume); err != nil {
		return err
	}
	_, err = fmt.Fprintf(i.streams.Out, "persistentvolumeclaim/%s imported\n", h.Record.Claim.Name)
	return err
}

func (i *importing) printAlreadyVirtual(claim string) error {
	_, err := fmt.Fprintf(i.streams.Out, "persistentvolumeclaim/%s is virtual already\n", claim)
	return err
}

// importAtHome takes the steps of an import at home until there is none left.
func (i *importing) importAtHome(ctx context.Context, volume string) error {
	return i.Await(ctx, "volume "+volume+" to be imported", func(ctx context.Context) (string, bool, error) {
		for {
			h, err := i.observe(ctx, volume, types.NamespacedName{})
			if err != nil {
				return "", false, err
			}
			if h.Record == nil {
				return "", true, nil
			}
			step, what, err := h.Next()
			if err != nil || step == Wait {
				return what, false, err
			}
			if err := i.act(ctx, h, step); err != nil {
				if isStale(err) {
					return err.Error(), false, nil
				}
				return "", false, err
			}
		}
	})
}

// act takes one step: one write.
func (i *importing) act(ctx context.Context, h Home, step Step) error {
	switch step {
	case Keep:
		return i.patchVolume(ctx, h.Real, nil, map[string]any{"persistentVolumeReclaimPolicy": corev1.PersistentVolumeReclaimRetain})
	case DropOld:
		i.Say("deleting volume %s, which stood for the data before", h.Old.Name)
		return dropOld(ctx, i.home, h.Old)
	case Delete:
		i.Say("deleting claim %s/%s; volume %s keeps the data", h.Holder.Namespace, h.Holder.Name, h.Real.Name)
		err := i.home.Client.CoreV1().PersistentVolumeClaims(h.Holder.Namespace).Delete(ctx, h.Holder.Name, deleteOptions(h.Holder))
		return i.home.Explain("delete claim "+h.Holder.Namespace+"/"+h.Holder.Name, err)
	case LetGo:
		patch := fmt.Appendf(nil, `{"metadata":{"uid":%q,"$deleteFromPrimitiveList/finalizers":[%q]}}`, h.Holder.UID, keys.BackingFinalizer)
		_, err := i.home.Client.CoreV1().PersistentVolumeClaims(h.Holder.Namespace).Patch(ctx, h.Holder.Name, types.StrategicMergePatchType,
			patch, metav1.PatchOptions{})
		return i.home.Explain("take the finalizer off claim "+h.Holder.Name, err)
	case Make:
		return i.createClaim(ctx, h.Record.Claim)
	case Free:
		at := h.twinName()
		return i.patchVolume(ctx, h.Real, nil, map[string]any{"claimRef": map[string]any{
			"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": at.Namespace, "name": at.Name, "uid": nil, "resourceVersion": nil}})
	case Twin:
		twin := backing.Twin(reference(h.Claim), h.Real, h.twinName(), h.HomeID)
		_, err := i.home.Client.CoreV1().PersistentVolumeClaims(twin.Namespace).Create(ctx, twin, metav1.CreateOptions{})
		return i.explainRefusal(twin, err)
	case Restore:
		return i.patchVolume(ctx, h.Real, nil, map[string]any{"persistentVolumeReclaimPolicy": h.Record.Policy})
	case Publish:
		return i.publish(ctx, backing.VolumeInput{Claim: h.Claim, Cluster: keys.Home, Backing: h.Twin, Real: h.Real})
	case Clear:
		return i.removeRecord(ctx, h.Claim)
	case End:
		i.Say("volume %s is the data of claim %s/%s", h.Real.Name, h.Claim.Namespace, h.Claim.Name)
		return i.patchVolume(ctx, h.Real, map[string]any{keys.Import: nil}, nil)
	default:
		return fmt.Errorf("take step %q: there is none of that name", step)
	}
}

// checkNamespaces returns an error unless the namespaces exist in which claims are to be made.
func (i *importing) checkNamespaces(ctx context.Context) error {
	for _, name := range []string{i.namespace, i.StorageNamespace} {
		namespace, err := i.home.Client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return cli.Refuse("there is no namespace %q in the cluster of context %q: create it, or give -n or --storage-namespace", name,
				i.home.Context)
		case err != nil:
			return i.home.Explain("get namespace "+name, err)
		case namespace.DeletionTimestamp != nil:
			return cli.Refuse("namespace %q is being deleted: nothing can be made there", name)
		}
	}
	return nil
}

// begin records the import on the real volume.
func (i *importing) begin(ctx context.Context, h Home, target types.NamespacedName) (*Record, error) {
	record := &Record{Policy: h.Real.Spec.PersistentVolumeReclaimPolicy, Claim: virtualClaim(target, i.Class, homeID(h.Real), h.Holder,
		h.Real)}
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
	err = i.patchVolume(ctx, h.Real, map[string]any{keys.Import: text},
		map[string]any{"persistentVolumeReclaimPolicy": corev1.PersistentVolumeReclaimRetain})
	if err == nil {
		i.Say("volume %s is kept while it is imported", h.Real.Name)
	}
	return record, err
}

// confirm asks the user to confirm: whose data becomes that of which claim, and what happens to the
// claim that has it now.
func (i *importing) confirm(ctx context.Context, target types.NamespacedName, real *corev1.PersistentVolume, from types.NamespacedName,
	goes string) error {
	size := real.Spec.Capacity[corev1.ResourceStorage]
	i.Say("Volume %s (%s, policy %s) becomes the data of virtual claim %s of class %q.",
		real.Name, size.String(), real.Spec.PersistentVolumeReclaimPolicy, target, i.Class)
	if from.Namespace != "" && from.Namespace != target.Namespace {
		i.Say("It is the data of claim %s: who may use namespace %s gets it.", from, target.Namespace)
	}
	i.Say("%s", goes)
	return cli.Ask(ctx, i.streams.In, i.streams.ErrOut, i.Yes, target.Name)
}

// undo undoes an import in one write, as long as nothing is lost by that.
func (i *importing) undo(ctx context.Context, h Home) error {
	if h.Record == nil {
		return fmt.Errorf("no import of volume %s is under way: there is nothing to undo", h.Real.Name)
	}
	if err := h.checkUndo(); err != nil {
		return err
	}
	if err := i.patchVolume(ctx, h.Real, map[string]any{keys.Import: nil},
		map[string]any{"persistentVolumeReclaimPolicy": h.Record.Policy}); err != nil {
		return err
	}
	_, err := fmt.Fprintf(i.streams.Out, "the import of persistentvolume/%s is undone\n", h.Real.Name)
	return err
}

func (i *importing) readClass(ctx context.Context) error {
	class, err := i.home.Client.StorageV1().StorageClasses().Get(ctx, i.Class, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return i.missingClass(ctx, fmt.Sprintf("there is no storage class %q", i.Class))
	case err != nil:
		return i.home.Explain("get storage class "+i.Class, err)
	case !virtualclass.Is(class):
		return i.missingClass(ctx, fmt.Sprintf("storage class %q is not virtual", i.Class))
	}
	i.class, err = virtualclass.Parse(class)
	return err
}

// missingClass is the error for a class that does not exist, or is not virtual.
func (i *importing) missingClass(ctx context.Context, problem string) error {
	names, err := virtualClasses(ctx, i.home, "")
	if err != nil || len(names) == 0 {
		return cli.Refuse("%s: name one whose provisioner is lodestone.dev (kubectl get storageclass)", problem)
	}
	return cli.Refuse("%s: name a virtual one, which is %s", problem, cli.Or(names))
}

// isStale reports whether a write failed because the object has changed since it was read: it is
// then read again. It is also true for a quota, which may still count an object that is deleted:
// that write is tried again.
func isStale(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) &&
		(quotaExceeded(err) || apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err))
}

// deleteOptions limits a deletion to the object that was read.
func deleteOptions(object metav1.Object) metav1.DeleteOptions {
	uid, version := object.GetUID(), object.GetResourceVersion()
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}}
}

// dropOld deletes a released virtual volume of policy Retain, which deletes
// nothing behind it.
func dropOld(ctx context.Context, home *cli.Cluster, old *corev1.PersistentVolume) error {
	return home.Explain("delete volume "+old.Name, home.Client.CoreV1().PersistentVolumes().Delete(ctx, old.Name, deleteOptions(old)))
}

// reference returns the claimRef of a volume for its claim.
func reference(claim *corev1.PersistentVolumeClaim) *corev1.ObjectReference {
	return &corev1.ObjectReference{Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name,
		UID: claim.UID}
}

func (i *importing) createClaim(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	_, err := i.home.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Create(ctx, claim,
		metav1.CreateOptions{FieldManager: fieldManager})
	return i.explainRefusal(claim, err)
}

// explainRefusal explains why a claim could not be made.
func (i *importing) explainRefusal(claim *corev1.PersistentVolumeClaim, err error) error {
	if denied(err) {
		return fmt.Errorf("claim %s/%s may not be made: %w; change what forbids it, then run the same command again", claim.Namespace, claim.Name,
			err)
	}
	return i.home.Explain("create claim "+claim.Namespace+"/"+claim.Name, err)
}

func (i *importing) removeRecord(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": claim.UID, "annotations": map[string]any{keys.Import: nil}}})
	if err != nil {
		return fmt.Errorf("write the change of claim %s: %w", claim.Name, err)
	}
	_, err = i.home.Client.CoreV1().PersistentVolumeClaims(claim.Namespace).Patch(ctx, claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager})
	return i.home.Explain("change claim "+claim.Namespace+"/"+claim.Name, err)
}

// patchVolume changes a real volume of home if it has not changed since it was read.
func (i *importing) patchVolume(ctx context.Context, real *corev1.PersistentVolume, annotations, spec map[string]any) error {
	metadata := map[string]any{"uid": real.UID, "resourceVersion": real.ResourceVersion}
	change := map[string]any{"metadata": metadata}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	if spec != nil {
		change["spec"] = spec
	}
	patch, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("write the change of volume %s: %w", real.Name, err)
	}
	_, err = i.home.Client.CoreV1().PersistentVolumes().Patch(ctx, real.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: fieldManager})
	return i.home.Explain("change volume "+real.Name, err)
}

// Annotations and finalizer that the provisioner's library writes on the volumes that it makes.
// With them the provisioner deletes the volume when its claim is deleted, and nobody else deletes
// it before.
const (
	provisionedBy        = "pv.kubernetes.io/provisioned-by"
	provisionerFinalizer = "external-provisioner.volume.kubernetes.io/finalizer"
	fieldManager         = "kubectl-lodestone"
)

// publish creates the virtual volume of a claim, as the provisioner would.
func (i *importing) publish(ctx context.Context, in backing.VolumeInput) error {
	in.Name, in.Class = "pvc-"+string(in.Claim.UID), i.class
	volume, err := backing.NewVolume(in)
	if err != nil {
		return err
	}
	volume.Annotations[provisionedBy] = keys.Driver
	volume.Finalizers = append(volume.Finalizers, provisionerFinalizer)
	volume.Spec.ClaimRef = reference(in.Claim)
	_, err = i.home.Client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{FieldManager: fieldManager})
	return i.home.Explain("create volume "+volume.Name, err)
}

// dryRunClaims asks home's API server by dry run whether it would accept the claims of an import at
// home. freed is the claim that is deleted before, nil for none.
func (i *importing) dryRunClaims(ctx context.Context, claim *corev1.PersistentVolumeClaim, real *corev1.PersistentVolume,
	freed *corev1.PersistentVolumeClaim) error {
	if err := i.dryRunClaim(ctx, claim, freed); err != nil {
		return err
	}
	// The virtual claim has no UID yet: the twin is named after another one.
	owner := reference(claim)
	owner.UID = uuid.NewUUID()
	at := types.NamespacedName{Namespace: i.StorageNamespace, Name: "pvc-" + string(owner.UID)}
	return i.dryRunClaim(ctx, backing.Twin(owner, real, at, i.homeID), freed)
}

// dryRunClaim asks home's API server by dry run whether it would accept a claim. Only while freed
// has the claim's name, another name is used.
func (i *importing) dryRunClaim(ctx context.Context, claim, freed *corev1.PersistentVolumeClaim) error {
	trial := claim.DeepCopy()
	near := freed != nil && freed.Namespace == claim.Namespace
	if near && freed.Name == claim.Name {
		trial.Name, trial.GenerateName = "", "import-"
	}
	_, err := i.home.Client.CoreV1().PersistentVolumeClaims(trial.Namespace).Create(ctx, trial,
		metav1.CreateOptions{FieldManager: fieldManager, DryRun: []string{metav1.DryRunAll}})
	name := claim.Namespace + "/" + claim.Name
	switch {
	case cannotDryRun(err):
		i.Say("it cannot be known beforehand whether claim %s may be made: %v", name, err)
		return nil
	case near && quotaExceeded(err):
		quotas, listed := i.home.Client.CoreV1().ResourceQuotas(claim.Namespace).List(ctx, metav1.ListOptions{})
		if listed == nil && quotaFits(quotas.Items, claim, freed) {
			return nil
		}
	}
	if denied(err) {
		return cli.Refuse("claim %s may not be made, so nothing was changed: %w; change what forbids it, then run the same command again",
			name, err)
	}
	return i.home.Explain("create claim "+name, err)
}

// cannotDryRun reports whether an admission plugin cannot be asked by dry run.
func cannotDryRun(err error) bool {
	return apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run")
}

// denied reports whether the cluster does not accept an object as it is, whoever creates it.
func denied(err error) bool {
	if apierrors.IsForbidden(err) {
		// With that text the user lacks the right; without it an admission plugin or policy refused
		// the object.
		return !strings.Contains(err.Error(), " cannot create resource ")
	}
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}

func quotaExceeded(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// quotaFits reports whether quotas have room for a claim once another claim of its namespace is
// deleted. It is pure.
func quotaFits(quotas []corev1.ResourceQuota, claim, freed *corev1.PersistentVolumeClaim) bool {
	takes, gives := quotaUsage(claim), quotaUsage(freed)
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

// quotaUsage is what a claim counts for in quotas.
func quotaUsage(claim *corev1.PersistentVolumeClaim) corev1.ResourceList {
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
