package snapshots

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumesnapshot"
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
		return g.take(ctx, o)
	case Release:
		return g.release(ctx, o, step)
	case Mark, Delete:
	}
	_, client, _ := g.remote(o)
	if client == nil {
		return errNoClient
	}
	return g.change(ctx, client, step.Verb, o.There, o.Cluster)
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

// take labels the backing claims of a content and creates the VolumeGroupSnapshot of all that have
// the label. If the cluster refuses it, the reason is written to the content's status.
func (g *Groups) take(ctx context.Context, o GroupObservation) error {
	_, classes := g.Contents.Resources()
	class, err := classIn(ctx, classes, o.Content.Spec.ClassName, o.Cluster)
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
	text, because := others, fmt.Errorf("%s: %w", others, errChanged)
	if others == "" {
		why, err := create(ctx, client, WantedGroup(o, version, class))
		switch {
		case err != nil:
			return fmt.Errorf("take group snapshot %s in %s: %w", GroupName(o.Content), o.Cluster, err)
		case why == nil:
			return nil
		}
		text, because = fmt.Sprintf("cluster %s refuses it: %v", o.Cluster, why), why
	}
	return fmt.Errorf("take group snapshot %s in %s: %w", GroupName(o.Content), o.Cluster,
		g.refused(ctx, o.Content, failGroup(o, text), because))
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

// removeLeft deletes a group snapshot in a remote cluster whose content is gone and of which home never
// knew.
func (g *Groups) removeLeft(ctx context.Context, it item) error {
	cluster := g.Clusters.Get(it.Cluster)
	if cluster == nil {
		return nil
	}
	left, version := cluster.Group(it.Left)
	if left == nil {
		return nil
	}
	var client dynamic.ResourceInterface
	if dynamic := cluster.Dynamic(); dynamic != nil {
		client = dynamic.Resource(volumesnapshot.GroupSnapshots(version)).Namespace(left.Namespace)
	}
	return g.removeOrphan(ctx, g.HomeID, it.Cluster, left, client)
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
		if err := proveGone(ctx, typed, client, o.Cluster, g.Clusters.Object(o.Cluster), GroupName(o.Content),
			func(found *unstructured.Unstructured) bool {
				return found.GetLabels()[keys.ContentUID] == string(o.Content.UID)
			}); err != nil {
			return err
		}
	}
	if o.Cluster != "" && o.Known && o.Usable {
		if err := g.unlabel(ctx, o); err != nil && step.Gone {
			return err
		}
	}
	return g.letGo(ctx, o.Content)
}
