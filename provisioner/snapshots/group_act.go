package snapshots

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
	"github.com/lodestone-storage/lodestone/provisioner/remote"
)

// act takes a step. It need not know whether a failed request took effect: the next
// observation shows it.
func (g *Groups) act(ctx context.Context, o GroupObservation, step GroupStep) error {
	switch step.Verb {
	case Idle:
		return nil
	case Report:
		if step.Taken {
			if err := g.unlabel(ctx, o); err != nil {
				return err
			}
		}
		return g.report(ctx, o.Content, step.Status)
	case Take:
		return g.create(ctx, o)
	case Release:
		return g.release(ctx, o, step)
	case Mark, Delete:
	}
	_, client, _ := g.remote(o)
	if client == nil {
		return errNoClient
	}
	if step.Verb == Mark {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.There.UID,
			"annotations": map[string]any{keys.Unpublished: nil}}})
		if err != nil {
			return fmt.Errorf("encode patch: %w", err)
		}
		if _, err = client.Patch(ctx, o.There.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return fmt.Errorf("mark group snapshot %s/%s in %s as known at home: %w", o.Namespace, o.There.Name, o.Cluster, err)
		}
		return nil
	}
	err := client.Delete(ctx, o.There.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &o.There.UID}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete group snapshot %s/%s in %s: %w", o.Namespace, o.There.Name, o.Cluster, err)
	}
	return nil
}

// remote returns clients of a content's cluster, for claims and for group snapshots of its namespace in
// the version that the cluster serves; nil where there are none.
func (g *Groups) remote(o GroupObservation) (kubernetes.Interface, dynamic.ResourceInterface, schema.GroupVersion) {
	cluster := g.Clusters.Get(o.Cluster)
	if cluster == nil {
		return nil, nil, schema.GroupVersion{}
	}
	typed, client := cluster.Clients()
	if typed == nil || client == nil {
		return nil, nil, schema.GroupVersion{}
	}
	_, version := cluster.Group(g.key(o))
	return typed, client.Resource(volumesnapshot.GroupSnapshots(version)).Namespace(o.Namespace), version
}

// create labels the backing claims of a content and creates the VolumeGroupSnapshot of all that have
// the label. If the cluster refuses it, the reason is written to the content's status.
func (g *Groups) create(ctx context.Context, o GroupObservation) error {
	class, err := g.class(ctx, o)
	if err != nil {
		return err
	}
	typed, client, version := g.remote(o)
	if client == nil {
		return errNoClient
	}
	others, err := g.label(ctx, typed, o)
	if err != nil {
		return err
	}
	if others != "" {
		return g.refused(ctx, o, others, fmt.Errorf("%s: %w", others, errChanged))
	}
	encoded, err := volumesnapshot.Write(WantedGroup(o, version, class))
	if err != nil {
		return err
	}
	_, err = client.Create(ctx, encoded, metav1.CreateOptions{})
	switch {
	case err == nil || apierrors.IsAlreadyExists(err):
		// Whether it is ours shows when it is observed.
		return nil
	case apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsNotFound(err) || apierrors.IsBadRequest(err):
		return g.refused(ctx, o, fmt.Sprintf("cluster %s refuses it: %v", o.Cluster, err), err)
	}
	return fmt.Errorf("take group snapshot %s in %s: %w", encoded.GetName(), o.Cluster, err)
}

// refused writes to a content why its snapshot cannot be taken, and returns what it was given.
func (g *Groups) refused(ctx context.Context, o GroupObservation, text string, because error) error {
	if step := failGroup(o, text); step.Verb == Report && g.reports.allow(o.Content.Name) {
		if err := g.report(ctx, o.Content, step.Status); err != nil {
			return err
		}
	}
	return fmt.Errorf("take group snapshot %s in %s: %w", GroupName(o.Content), o.Cluster, because)
}

// label gives each backing claim of a content the label by which the snapshot controller finds it.
// It returns a sentence if others have it, too: the snapshot would be of these as well.
func (g *Groups) label(ctx context.Context, typed kubernetes.Interface, o GroupObservation) (others string, err error) {
	claims := typed.CoreV1().PersistentVolumeClaims(o.Namespace)
	label := GroupLabel(o.Content)
	wanted := map[types.UID]bool{}
	for _, m := range o.Members {
		// The patch names the UID: a claim that was made anew under the name is not labelled.
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": m.source().UID, "labels": map[string]any{label: "true"}}})
		if err != nil {
			return "", fmt.Errorf("encode patch: %w", err)
		}
		if _, err := claims.Patch(ctx, m.Ref.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			return "", fmt.Errorf("label real claim %s in %s for a group snapshot: %w", m.Ref.Key(), o.Cluster, err)
		}
		wanted[m.source().UID] = true
	}
	found, err := claims.List(ctx, metav1.ListOptions{LabelSelector: label})
	if err != nil {
		return "", fmt.Errorf("look for real claims with label %s in %s: %w", label, o.Cluster, err)
	}
	seen := 0
	for i := range found.Items {
		if !wanted[found.Items[i].UID] {
			return fmt.Sprintf("claim %s/%.253s in cluster %s has label %s too, which is for this group snapshot alone: remove the label there",
				o.Namespace, found.Items[i].Name, o.Cluster, label), nil
		}
		seen++
	}
	if seen != len(wanted) {
		return "", fmt.Errorf("%d of %d real claims have label %s: %w", seen, len(wanted), label, errChanged)
	}
	return "", nil
}

// unlabel takes the label off again.
func (g *Groups) unlabel(ctx context.Context, o GroupObservation) error {
	typed, _, _ := g.remote(o)
	if typed == nil {
		return errNoClient
	}
	claims, label := typed.CoreV1().PersistentVolumeClaims(o.Namespace), GroupLabel(o.Content)
	found, err := claims.List(ctx, metav1.ListOptions{LabelSelector: label + "," + keys.HomeID + "=" + o.HomeID})
	if err != nil {
		return fmt.Errorf("look for real claims with label %s in %s: %w", label, o.Cluster, err)
	}
	for i := range found.Items {
		claim := &found.Items[i]
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": claim.UID, "labels": map[string]any{label: nil}}})
		if err != nil {
			return fmt.Errorf("encode patch: %w", err)
		}
		if _, err := claims.Patch(ctx, claim.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("take label %s off real claim %s/%s in %s: %w", label, o.Namespace, claim.Name, o.Cluster, err)
		}
	}
	return nil
}

// WantedGroup returns the VolumeGroupSnapshot to create for a content, in this version and with this class of the remote
// cluster; empty means its default class.
func WantedGroup(o GroupObservation, version schema.GroupVersion, class string) *volumesnapshot.GroupSnapshot {
	s := &volumesnapshot.GroupSnapshot{
		TypeMeta: metav1.TypeMeta{APIVersion: version.String(), Kind: volumesnapshot.GroupKind},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: o.Namespace, Name: GroupName(o.Content),
			Labels: map[string]string{keys.HomeID: o.HomeID, keys.ContentUID: string(o.Content.UID)},
			Annotations: map[string]string{
				keys.Content: o.Content.Name, keys.MadeBy: o.Members[0].Real.Spec.CSI.Driver, keys.Unpublished: "true",
			},
		},
		Spec: volumesnapshot.GroupSnapshotSpec{Source: volumesnapshot.GroupSnapshotSource{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{GroupLabel(o.Content): "true"}},
		}},
	}
	if class != "" {
		s.Spec.ClassName = &class
	}
	return s
}

// class returns the class to use in the remote cluster, as named by the content's own class; empty if
// that names none or is gone.
func (g *Groups) class(ctx context.Context, o GroupObservation) (string, error) {
	_, classes := g.Contents.Resources()
	if o.Content.Spec.ClassName == nil || classes == nil {
		return "", nil
	}
	found, err := classes.Get(ctx, *o.Content.Spec.ClassName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look at VolumeGroupSnapshotClass %s: %w", *o.Content.Spec.ClassName, err)
	}
	class, err := volumesnapshot.Read[volumesnapshot.Class](found)
	if err != nil {
		return "", err
	}
	return class.In(o.Cluster), nil
}

// removeOrphan deletes a group snapshot in a remote cluster whose content is gone, if home never
// marked it as known. A marked one was deleted together with its content, or is to be kept.
func (g *Groups) removeOrphan(ctx context.Context, it item) error {
	cluster := g.Clusters.Get(it.Cluster)
	contents, _ := g.Contents.Resources()
	if cluster == nil || contents == nil {
		return nil
	}
	left, version := cluster.Group(it.Left)
	if left == nil || left.Annotations[keys.Unpublished] == "" || left.DeletionTimestamp != nil || left.Labels[keys.HomeID] != g.HomeID {
		return nil
	}
	content, err := contents.Get(ctx, left.Annotations[keys.Content], metav1.GetOptions{})
	switch {
	case err == nil && string(content.GetUID()) == left.Labels[keys.ContentUID]:
		return nil
	case err != nil && !apierrors.IsNotFound(err):
		return fmt.Errorf("look for group content %s: %w", left.Annotations[keys.Content], err)
	}
	client := cluster.Dynamic()
	if client == nil {
		return errNoClient
	}
	err = client.Resource(volumesnapshot.GroupSnapshots(version)).Namespace(left.Namespace).Delete(ctx, left.Name,
		metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &left.UID, ResourceVersion: &left.ResourceVersion}})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete group snapshot %s in %s, which nobody knows of: %w", it.Left, it.Cluster, err)
	}
	return nil
}

// report writes the status of a content, unless it has changed since it was observed.
func (g *Groups) report(ctx context.Context, c *volumesnapshot.GroupContent, status volumesnapshot.GroupContentStatus) error {
	status.Error = dated(status.Error)
	said := map[string]any{"readyToUse": status.ReadyToUse, "error": status.Error, "creationTime": status.CreationTime}
	if status.Handle != nil {
		said["volumeGroupSnapshotHandle"], said["volumeSnapshotInfoList"] = status.Handle, status.Members
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": c.UID, "resourceVersion": c.ResourceVersion}, "status": said,
	})
	if err != nil {
		return fmt.Errorf("encode status: %w", err)
	}
	contents, _ := g.Contents.Resources()
	if contents == nil {
		return errNoClient
	}
	if _, err := contents.Patch(ctx, c.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status"); err != nil {
		return fmt.Errorf("write status of group content %s: %w", c.Name, err)
	}
	return nil
}

// release removes our finalizer from a content, if step.Gone only after the remote API server has
// confirmed that the snapshot is gone. Claims that were labelled for it lose the label; where the
// cluster does not answer, and nothing there is to be deleted, they keep it: it means nothing to anybody.
func (g *Groups) release(ctx context.Context, o GroupObservation, step GroupStep) error {
	if step.Gone {
		typed, client, _ := g.remote(o)
		if client == nil {
			return errNoClient
		}
		if err := g.proveGone(ctx, typed, client, o); err != nil {
			return err
		}
	}
	if o.Cluster != "" && o.Known && o.Usable {
		if err := g.unlabel(ctx, o); err != nil && step.Gone {
			return err
		}
	}
	contents, _ := g.Contents.Resources()
	if contents == nil {
		return errNoClient
	}
	finalizers := slices.DeleteFunc(slices.Clone(o.Content.Finalizers), func(f string) bool {
		return f == volumesnapshot.GroupContentFinalizer
	})
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": o.Content.UID, "resourceVersion": o.Content.ResourceVersion,
		"finalizers": finalizers}})
	if err != nil {
		return fmt.Errorf("encode patch: %w", err)
	}
	if _, err := contents.Patch(ctx, o.Content.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil &&
		!apierrors.IsNotFound(err) {
		return fmt.Errorf("let group content %s go: %w", o.Content.Name, err)
	}
	return nil
}

// proveGone asks the remote API server whether the snapshot of a content is gone, and first whether it
// is the right cluster: a wrong one would also answer that there is none.
func (g *Groups) proveGone(ctx context.Context, typed kubernetes.Interface, client dynamic.ResourceInterface, o GroupObservation) error {
	same, err := remote.Same(ctx, typed, g.Clusters.Object(o.Cluster), "")
	switch {
	case err != nil:
		return fmt.Errorf("ask which cluster %s is: %w", o.Cluster, err)
	case !same:
		return fmt.Errorf("the kubeconfig of cluster %s leads to another cluster: %w", o.Cluster, errChanged)
	}
	found, err := client.Get(ctx, GroupName(o.Content), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("look for group snapshot %s in %s: %w", g.key(o), o.Cluster, err)
	case found.GetLabels()[keys.ContentUID] == string(o.Content.UID):
		return fmt.Errorf("group snapshot %s in %s is there: %w", g.key(o), o.Cluster, errChanged)
	}
	return nil
}
