package rules

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	mcs "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

const (
	// maxPorts is how many ports are taken of a Service, and how many an import may have.
	maxPorts = 100
	// maxEntries and maxText bound the labels and annotations that an export gives its imports.
	maxEntries, maxText = 32, 8 << 10
	// maxAffinity is the longest time of session affinity that Kubernetes takes, in seconds.
	maxAffinity = 86400
)

// Reasons of the condition Valid that the API does not name.
const (
	reasonTooMany mcs.ServiceExportConditionReason = "TooManyExports"
	reasonName    mcs.ServiceExportConditionReason = "InvalidName"
	reasonPorts   mcs.ServiceExportConditionReason = "InvalidPorts"
	reasonTraffic mcs.ServiceExportConditionReason = "InvalidSessionAffinity"
	reasonLabels  mcs.ServiceExportConditionReason = "InvalidLabels"
)

// Valid is the condition Valid of an export. Whatever is made of a valid one, an API server takes: else a cluster could keep others from
// importing what they export themselves.
func Valid(export Export) metav1.Condition {
	no := func(reason mcs.ServiceExportConditionReason, format string, args ...any) metav1.Condition {
		return condition(mcs.ServiceExportConditionValid, false, reason, fmt.Sprintf(format, args...))
	}
	service := export.Service
	switch {
	case export.TooMany:
		return no(reasonTooMany, "of a remote cluster no more than %d ServiceExports of a namespace are taken, by their names: delete others",
			maxExports)
	case len(export.Object.Name) > maxName || len(validation.IsDNS1123Label(export.Object.Name)) > 0:
		return no(reasonName, "the name of a Service that is exported has at most %d lower-case letters, digits and '-': export a Service "+
			"that has such a name", maxName)
	case service == nil:
		return no(mcs.ServiceExportReasonNoService, "there is no Service %s in this namespace: make it, or delete the ServiceExport",
			export.Object.Name)
	case service.Spec.Type == corev1.ServiceTypeExternalName:
		return no(mcs.ServiceExportReasonInvalidServiceType, "a Service of type ExternalName has no endpoints to export: give the name it "+
			"stands for to those who need it")
	case service.Namespace == metav1.NamespaceDefault && service.Name == "kubernetes":
		return no(mcs.ServiceExportReasonInvalidServiceType, "the Service of the API server is its cluster's own: export another one")
	}
	if problem := portProblem(service); problem != "" {
		return no(reasonPorts, "%s", problem)
	}
	if problem := affinityProblem(service); problem != "" {
		return no(reasonTraffic, "%s", problem)
	}
	for _, given := range []struct {
		field  string
		values map[string]string
		check  func(string) []string
	}{
		{"exportedLabels", export.Object.Spec.ExportedLabels, validation.IsValidLabelValue},
		{"exportedAnnotations", export.Object.Spec.ExportedAnnotations, nil},
	} {
		if problem := entriesProblem(given.values, given.check); problem != "" {
			return no(reasonLabels, "spec.%s %s", given.field, problem)
		}
	}
	return condition(mcs.ServiceExportConditionValid, true, mcs.ServiceExportReasonValid, "the Service can be exported")
}

// TooMany says of an export of a remote cluster, by its name, whether it is one of those that are not taken. Exports are the
// names of all in its namespace.
func TooMany(exports []string, name string) bool {
	before := 0
	for _, other := range exports {
		if other < name {
			before++
		}
	}
	return before >= maxExports
}

// portProblem says what of the ports of a Service no API server would have taken, empty if nothing.
func portProblem(service *corev1.Service) string {
	ports := service.Spec.Ports
	headless := service.Spec.ClusterIP == corev1.ClusterIPNone
	if len(ports) > maxPorts || len(ports) == 0 && !headless {
		return fmt.Sprintf("the Service has %d ports: give it 1 to %d", len(ports), maxPorts)
	}
	type number struct {
		protocol corev1.Protocol
		port     int32
	}
	names, numbers := map[string]bool{}, map[number]bool{}
	for _, port := range portsOf(service) {
		is := number{port.Protocol, port.Port}
		switch {
		case port.Port < 1 || port.Port > 65535,
			!slices.Contains([]corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}, port.Protocol),
			port.Name == "" && len(ports) > 1, port.Name != "" && len(validation.IsDNS1123Label(port.Name)) > 0,
			port.AppProtocol != nil && len(validation.IsQualifiedName(*port.AppProtocol)) > 0,
			names[port.Name], numbers[is]:
			return fmt.Sprintf("port %d of the Service cannot be imported: give each port a name, a number and a protocol of its own", port.Port)
		}
		names[port.Name], numbers[is] = true, true
	}
	return ""
}

// affinityProblem says what is wrong with the session affinity of a Service, empty if nothing.
func affinityProblem(service *corev1.Service) string {
	spec := specOf(service)
	config := spec.SessionAffinityConfig
	switch spec.SessionAffinity {
	case "", corev1.ServiceAffinityNone:
		return ""
	case corev1.ServiceAffinityClientIP:
		if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil ||
			*config.ClientIP.TimeoutSeconds > 0 && *config.ClientIP.TimeoutSeconds <= maxAffinity {
			return ""
		}
	}
	return fmt.Sprintf("the session affinity of the Service cannot be imported: give None, or ClientIP for 1 to %d seconds", maxAffinity)
}

// entriesProblem says what is wrong with labels or annotations for imports, empty if nothing. Those of Kubernetes and of Lodestone say
// how an object is treated, which is not for another cluster to say.
func entriesProblem(values map[string]string, check func(string) []string) string {
	if len(values) > maxEntries {
		return fmt.Sprintf("has %d entries: give at most %d", len(values), maxEntries)
	}
	size := 0
	for key, value := range values {
		size += len(key) + len(value)
		prefix, _, _ := strings.Cut(key, "/")
		switch {
		case len(validation.IsQualifiedName(strings.ToLower(key))) > 0, check != nil && len(check(value)) > 0:
			return "has entries that Kubernetes does not take: give keys and values as labels and annotations have them"
		case strings.Contains(key, "/") && reserved(prefix):
			return "has entries of kubernetes.io, k8s.io or lodestone.dev, which are not for imports: give others"
		}
	}
	if size > maxText {
		return fmt.Sprintf("has %d bytes: give at most %d", size, maxText)
	}
	return ""
}

func reserved(domain string) bool {
	return slices.ContainsFunc([]string{"kubernetes.io", "k8s.io", "lodestone.dev"}, func(own string) bool {
		return domain == own || strings.HasSuffix(domain, "."+own)
	})
}

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
