package rules

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Facts are what the condition Ready of an export says.
type Facts struct {
	Export Export
	// Valid is the condition of that name. Open says that the cluster takes part in the namespace, which belongs to HomeNamespace.
	Valid, Open   bool
	HomeNamespace string
	// Clusters are the IDs of those that import it, Problems say why one of them cannot, Absent why others have no part in it.
	Clusters         []string
	Problems, Absent map[string]string
	// LeftOut is how many endpoints are not taken.
	LeftOut int
}

// Ready is the condition Ready of an export.
func Ready(f Facts) metav1.Condition {
	no := func(reason mcs.ServiceExportConditionReason, format string, args ...any) metav1.Condition {
		return condition(mcs.ServiceExportConditionReady, false, reason, fmt.Sprintf(format, args...))
	}
	said := func(problems map[string]string) string {
		var all []string
		for cluster, problem := range problems {
			all = append(all, "cluster "+cluster+": "+problem)
		}
		slices.Sort(all)
		return strings.Join(all, "; ")
	}
	switch from := f.Export.From; {
	case !f.Valid:
		return no(mcs.ServiceExportReasonPending, "nothing is exported while the condition Valid is not True")
	case !f.Open && !from.Home() && !from.Network.Joined():
		return no("NetworkNotJoined", "pods of other clusters do not reach those of this one: have spec.podNetwork of the RemoteCluster be "+
			"Fabric or Routed")
	case !f.Open:
		return no("NotOffloaded", "namespace %s of the home cluster is not open to this cluster: give it the label %s=%s there", f.HomeNamespace,
			keys.Offload, keys.OffloadEnabled)
	case len(f.Problems) > 0:
		return no(mcs.ServiceExportReasonFailed, "%s", said(f.Problems))
	case f.LeftOut > 0:
		return no(mcs.ServiceExportReasonFailed, "%d endpoints are left out: of each cluster those are taken that have addresses from "+
			"spec.podCIDRs of its RemoteCluster, up to %d", f.LeftOut, maxEndpoints)
	}
	message := "the Service can be used in clusters " + strings.Join(f.Clusters, ", ")
	if len(f.Absent) > 0 {
		message += "; not in " + said(f.Absent)
	}
	return condition(mcs.ServiceExportConditionReady, true, mcs.ServiceExportReasonExported, message)
}
