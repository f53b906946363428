package clusters

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

// verdict is what was concluded about a remote cluster.
type verdict struct {
	finding
	// unconfigured is a sentence when there is no usable kubeconfig.
	unconfigured string
	// rests is true where it is not listened to, and unconfigured says why.
	rests bool
	// unwanted is a sentence when the cluster must not be used: it is the home
	// cluster, or another RemoteCluster stands for it.
	unwanted       string
	unwantedReason string
	leaving        string
	unsynced       bool
	checked        bool
	// credentials is the condition CredentialsValid.
	credentials metav1.Condition
}

// conditions returns the conditions that a verdict means. The first obstacle
// gives Ready its reason and sentence.
func (v verdict) conditions(generation int64) []metav1.Condition {
	reachable := condition(v1alpha1.Reachable, metav1.ConditionTrue, "Answers", "its API server answers")
	authorized := condition(v1alpha1.Authorized, metav1.ConditionTrue, "HasRights", "the kubeconfig has the cluster-wide rights that are needed")
	ready := condition(v1alpha1.Ready, metav1.ConditionTrue, "Ready", "volumes can be made there")
	switch {
	case v.rests:
		reachable = condition(v1alpha1.Reachable, metav1.ConditionUnknown, "NotTried", v.unconfigured)
		authorized = condition(v1alpha1.Authorized, metav1.ConditionUnknown, "NotTried", v.unconfigured)
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "TooMuch", v.unconfigured)
	case v.unconfigured != "":
		reachable = condition(v1alpha1.Reachable, metav1.ConditionUnknown, "NotTried", "there is no usable kubeconfig")
		authorized = condition(v1alpha1.Authorized, metav1.ConditionFalse, "BadKubeconfig", v.unconfigured)
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "BadKubeconfig", v.unconfigured)
	case !v.checked:
		reachable = condition(v1alpha1.Reachable, metav1.ConditionUnknown, "Checking", "its API server is being asked")
		authorized = condition(v1alpha1.Authorized, metav1.ConditionUnknown, "Checking", "its API server is being asked")
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "Checking", "its API server is being asked")
	case v.unreachable != "":
		reachable = condition(v1alpha1.Reachable, metav1.ConditionFalse, "NoAnswer", v.unreachable)
		authorized = condition(v1alpha1.Authorized, metav1.ConditionUnknown, "NoAnswer", "its API server does not answer")
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "NotReachable", v.unreachable)
	case v.unauthorized != "":
		authorized = condition(v1alpha1.Authorized, metav1.ConditionFalse, "MissingRights", v.unauthorized)
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "NotAuthorized", v.unauthorized)
	case v.unwanted != "":
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, v.unwantedReason, v.unwanted)
	case v.leaving != "":
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "Leaving", v.leaving)
	case v.unsynced:
		ready = condition(v1alpha1.Ready, metav1.ConditionFalse, "Syncing", "its volumes and storage classes are being read")
	}
	credentials := v.credentials
	if credentials.Type == "" {
		credentials = condition(v1alpha1.CredentialsValid, metav1.ConditionUnknown, "NotRead", "there is no usable kubeconfig")
	}
	result := []metav1.Condition{ready, reachable, authorized, credentials}
	for i := range result {
		result[i].ObservedGeneration = generation
	}
	return result
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// usable says whether requests may be sent to the cluster; a cluster that is
// leaving still is, for its volumes must be served.
func (v verdict) usable() (ok bool, reason, message string) {
	without := v
	without.leaving = ""
	ready := meta.FindStatusCondition(without.conditions(0), v1alpha1.Ready)
	return ready.Status == metav1.ConditionTrue, ready.Reason, ready.Message
}

// unwanted returns why a RemoteCluster is not wanted, given the UID of the
// cluster that it leads to, that of the home cluster, all other objects, and how
// many volumes and snapshots have their data in the cluster that it led to before.
func unwanted(self *v1alpha1.RemoteCluster, clusterUID, homeUID string, all []*v1alpha1.RemoteCluster, volumes int) (reason, message string) {
	if clusterUID == "" {
		return "", ""
	}
	if clusterUID == homeUID {
		return "PointsHome", "the kubeconfig leads to the home cluster itself: use that of another cluster"
	}
	if recorded := self.Status.ClusterUID; volumes > 0 && recorded != "" && recorded != clusterUID {
		// Asked whether a volume is gone, a wrong cluster would say yes.
		return otherCluster, fmt.Sprintf("the kubeconfig leads to another cluster than the one that holds %d volumes or snapshots: put back the kubeconfig of that one", volumes)
	}
	for _, other := range all {
		if other.Name == self.Name || other.Status.ClusterUID != clusterUID {
			continue
		}
		if older(other, self) {
			return "Duplicate", fmt.Sprintf("RemoteCluster %q already stands for this cluster: delete one of the two", other.Name)
		}
	}
	return "", ""
}

func older(a, b *v1alpha1.RemoteCluster) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// otherCluster is the reason of a RemoteCluster that no longer leads to the
// cluster that holds its volumes.
const otherCluster = "OtherCluster"
