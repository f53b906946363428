// Package lose is the command lose: it declares the data of volumes lost whose remote cluster is
// gone for ever. judge.go decides whether that is allowed, lose.go does it.
package lose

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/replica"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// volumeOf returns why a volume cannot be declared lost, nil if it can.
func volumeOf(volume *corev1.PersistentVolume) error {
	switch cluster := cli.ClusterOf(volume); cluster {
	case "":
		return cli.Refuse("volume %s is not a virtual volume, so Lodestone does not keep it: delete it as any other", volume.Name)
	case keys.Home:
		return cli.Refuse("the data of volume %s is in the home cluster, which is not gone: delete its claim if it is to go", volume.Name)
	}
	return nil
}

// Judge returns why the data of a cluster must not be declared lost, nil if it may be, and a text
// on when the cluster was last seen. remote is nil if there is no RemoteCluster of that name. It is
// pure.
func Judge(cluster string, remote *v1alpha1.RemoteCluster, away time.Duration, now time.Time) (seen string, err error) {
	if remote == nil {
		return "unknown, since there is no RemoteCluster of that name", nil
	}
	reachable := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.Reachable)
	switch {
	case reachable == nil || reachable.Status == metav1.ConditionUnknown:
		reason := "nobody has looked yet"
		if reachable != nil {
			reason = reachable.Message
		}
		return "", cli.Refuse("it is not known whether cluster %q is gone (%s): let the provisioner look at it, with a kubeconfig "+
			"that leads there", cluster, reason)
	case reachable.Status == metav1.ConditionTrue:
		return "", cli.Refuse("cluster %q answers, so nothing there is lost: delete the claim, and its data is deleted there; if this is not "+
			"that cluster any more, correct its kubeconfig", cluster)
	}
	gone := now.Sub(reachable.LastTransitionTime.Time)
	if gone < away {
		return "", cli.Refuse("cluster %q was seen %s ago, which may be a short outage: wait until it has been away for %s, or give another "+
			"time with --away", cluster, replica.Short(gone.Round(time.Second)), replica.Short(away))
	}
	return fmt.Sprintf("%s, %s ago", reachable.LastTransitionTime.UTC().Format(time.RFC3339), replica.Short(gone.Round(time.Second))), nil
}

// describe says what is lost, one line each.
func describe(volume *corev1.PersistentVolume, seen string, pods []corev1.Pod) []string {
	size := volume.Spec.Capacity[corev1.ResourceStorage]
	claim := "none"
	if ref := volume.Spec.ClaimRef; ref != nil {
		claim = ref.Namespace + "/" + ref.Name
	}
	names := make([]string, 0, len(pods))
	for _, pod := range pods {
		names = append(names, pod.Name)
	}
	used := "none"
	if len(names) > 0 {
		used = strings.Join(names, ", ")
	}
	_, there, _ := strings.Cut(volume.Annotations[keys.Backing], "/")
	return []string{
		fmt.Sprintf("volume     %s (%s, %s, policy %s)", volume.Name, size.String(), volume.Status.Phase,
			volume.Spec.PersistentVolumeReclaimPolicy),
		"claim      " + claim,
		"pods       " + used,
		fmt.Sprintf("data       cluster %s, real claim %s", cli.ClusterOf(volume), there[:max(0, strings.LastIndex(there, "/"))]),
		"last seen  " + seen,
	}
}
