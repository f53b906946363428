package upgrade

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

// Marking is a claim that is not Lodestone's and that pods in remote clusters use, though it is not
// marked as usable there.
type Marking struct {
	Claim *corev1.PersistentVolumeClaim
	// Clusters are those where it needs the mark, Pods some that use it there.
	Clusters, Pods []string
}

// Value returns the annotation with which the claim may be used where it is used.
func (m Marking) Value() string {
	all := slices.Clone(m.Clusters)
	for listed := range strings.SplitSeq(locality.Mark(m.Claim.Annotations), ",") {
		if listed = strings.TrimSpace(listed); listed != "" {
			all = append(all, listed)
		}
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), ",")
}

// Markings returns the claims that need a mark, by namespace and name. Only pods that run count: one
// that waits in a remote cluster may do so because there is no such claim. It is pure.
func Markings(i Installation) []Marking {
	clusterOf := map[string]string{}
	for _, node := range i.Nodes {
		if cluster := node.Labels[keys.Cluster]; cluster != "" {
			clusterOf[node.Name] = cluster
		}
	}
	claims := map[string]*Marking{}
	for _, claim := range i.Claims {
		claims[claim.Namespace+"/"+claim.Name] = &Marking{Claim: claim}
	}
	volumes := map[string]*corev1.PersistentVolume{}
	for _, volume := range i.Volumes {
		volumes[volume.Name] = volume
	}
	classes := map[string]*storagev1.StorageClass{}
	for _, class := range i.Classes {
		classes[class.Name] = class
	}
	for _, pod := range i.Pods {
		cluster := clusterOf[pod.Spec.NodeName]
		if cluster == "" || pod.Status.Phase != corev1.PodRunning {
			continue
		}
		for _, name := range claimNames(pod) {
			found := claims[pod.Namespace+"/"+name]
			if found == nil || volumes[found.Claim.Spec.VolumeName] == nil {
				continue // its volume was not read, and might be virtual
			}
			class := ""
			if found.Claim.Spec.StorageClassName != nil {
				class = *found.Claim.Spec.StorageClassName
			}
			if !locality.UsableIn(cluster, found.Claim, volumes[found.Claim.Spec.VolumeName], classes[class]) {
				found.Clusters, found.Pods = append(found.Clusters, cluster), append(found.Pods, pod.Name)
			}
		}
	}
	var all []Marking
	for _, found := range claims {
		if len(found.Clusters) > 0 {
			slices.Sort(found.Clusters)
			slices.Sort(found.Pods)
			found.Clusters = slices.Compact(found.Clusters)
			all = append(all, *found)
		}
	}
	slices.SortFunc(all, func(a, b Marking) int {
		return cmp.Or(cmp.Compare(a.Claim.Namespace, b.Claim.Namespace), cmp.Compare(a.Claim.Name, b.Claim.Name))
	})
	return all
}

func claimNames(pod *corev1.Pod) (names []string) {
	for i := range pod.Spec.Volumes {
		switch volume := &pod.Spec.Volumes[i]; {
		case volume.PersistentVolumeClaim != nil:
			names = append(names, volume.PersistentVolumeClaim.ClaimName)
		case volume.Ephemeral != nil:
			names = append(names, ephemeral.VolumeClaimName(pod, volume))
		}
	}
	return names
}

// claimsNotMarked finds claims whose next pods would be kept out of the remote clusters where pods use
// them now.
func claimsNotMarked(i Installation) (found []Finding) {
	for _, m := range Markings(i) {
		found = append(found, Finding{
			About: "claim " + m.Claim.Namespace + "/" + m.Claim.Name,
			Change: fmt.Sprintf("it is not of a class of Lodestone, and pod %s uses it in cluster %s; after the upgrade new pods of it stay at home",
				m.Pods[0], strings.Join(m.Clusters, " and ")),
			Do: fmt.Sprintf("if they are to run there as until now, annotate it %s=%s, which `kubectl lodestone check-upgrade --mark` does",
				keys.UsableIn, m.Value()),
		})
	}
	return found
}

// mark shows the claims that need a mark, asks, and marks them.
func mark(ctx context.Context, home *cli.Cluster, streams genericiooptions.IOStreams, yes bool, all []Marking) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(streams.Out, "No claim needs a mark.")
		return err
	}
	for _, m := range all {
		fmt.Fprintf(streams.ErrOut, "claim %s/%s is used in cluster %s by pod %s\n", m.Claim.Namespace, m.Claim.Name,
			strings.Join(m.Clusters, " and "), strings.Join(m.Pods[:min(3, len(m.Pods))], ", "))
	}
	fmt.Fprintf(streams.ErrOut, "These claims will get the annotation %s with these clusters.\n", keys.UsableIn)
	if err := cli.Ask(ctx, streams.In, streams.ErrOut, yes, "mark"); err != nil {
		return err
	}
	var failed []error
	for _, m := range all {
		if err := writeMark(ctx, home, m); err != nil {
			failed = append(failed, err)
			continue
		}
		fmt.Fprintf(streams.Out, "persistentvolumeclaim/%s -n %s marked %s=%s\n", m.Claim.Name, m.Claim.Namespace, keys.UsableIn, m.Value())
	}
	return errors.Join(failed...)
}

// writeMark writes the mark of one claim, unless that was changed since it was read.
func writeMark(ctx context.Context, home *cli.Cluster, m Marking) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": m.Claim.UID, "resourceVersion": m.Claim.ResourceVersion,
		"annotations": map[string]string{keys.UsableIn: m.Value()}}})
	if err != nil {
		return fmt.Errorf("encode the mark of claim %s/%s: %w", m.Claim.Namespace, m.Claim.Name, err)
	}
	_, err = home.Client.CoreV1().PersistentVolumeClaims(m.Claim.Namespace).Patch(ctx, m.Claim.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: "kubectl-lodestone"})
	switch {
	case apierrors.IsNotFound(err):
		return nil // gone, and with it what was to be marked
	case apierrors.IsConflict(err):
		return fmt.Errorf("claim %s/%s was changed meanwhile, so it was left as it is: run the same command again (%w)", m.Claim.Namespace,
			m.Claim.Name, err)
	}
	return home.Explain("patch persistentvolumeclaim "+m.Claim.Namespace+"/"+m.Claim.Name, err)
}
