// Package translate converts pods between home and a remote cluster: Template makes the remote pod
// from a home pod, Status makes the home pod's status from the remote pod, and Event what an event
// there says at home. It is pure: values in, values out.
package translate

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/virtualnode/reflect/needs"
)

const (
	// ownPrefix is the prefix of Lodestone's labels and annotations: those of the home pod are not
	// true of the remote one.
	ownPrefix = "lodestone.dev/"

	lastApplied = "kubectl.kubernetes.io/last-applied-configuration"
)

// Mapping returns the namespace of the remote cluster for a home namespace.
type Mapping func(home string) string

// Template returns the pod to request in the remote cluster. It has the spec of the home pod, with
// the same names of claims, ConfigMaps and Secrets, but without constraints that refer to home's
// nodes. The pod is not changed. If a claim has another name there, only its volume knows: see
// Rename. homeServer is the URL of home's API server for pods there, empty if there is none.
func Template(pod *corev1.Pod, mapped Mapping, homeServer string) corev1.PodTemplateSpec {
	template := corev1.PodTemplateSpec{Spec: *pod.Spec.DeepCopy()}
	template.Labels = foreign(pod.Labels)
	template.Annotations = foreign(pod.Annotations)
	delete(template.Annotations, lastApplied)
	if template.Annotations == nil {
		template.Annotations = map[string]string{}
	}
	template.Annotations[keys.HomeNamespace] = pod.Namespace

	spec := &template.Spec
	// Home's scheduler and admission set these, or they are possible only later in the life of a
	// pod.
	spec.NodeName = ""
	spec.SchedulerName = ""
	spec.SchedulingGates = nil
	spec.SchedulingGroup = nil
	spec.Priority, spec.PreemptionPolicy = nil, nil
	spec.Overhead = nil
	// A controller of home sets these conditions on the home pod, where the remote cluster cannot
	// see them: Status applies them.
	spec.ReadinessGates = nil
	// The ServiceAccount of home does not exist there.
	spec.ServiceAccountName, spec.DeprecatedServiceAccount = "", ""
	spec.AutomountServiceAccountToken = ptr.To(false)
	// DNS resolves the Services of home's namespace. A kubelet's variables would be about whatever
	// Services are in the namespace there.
	spec.EnableServiceLinks = ptr.To(false)

	// Only home's scheduler ignores the marker resource; no node there has it.
	eachContainer(spec, func(c *corev1.Container) {
		c.Resources.Requests = unmarked(c.Resources.Requests)
		c.Resources.Limits = unmarked(c.Resources.Limits)
	})
	claims(pod.Name, spec)
	placement(spec, mapped)
	tokens(pod, spec)
	homeAPI(pod, spec, homeServer)
	fields(pod, spec, mapped(pod.Namespace) != pod.Namespace)
	return template
}

// claims makes generic ephemeral volumes use the claims that home made for them, whose shadows have
// the same names there: a kubelet refuses a claim that its pod does not own. Home's scheduler has
// checked that this pod owns them at home.
func claims(pod string, spec *corev1.PodSpec) {
	for i := range spec.Volumes {
		if volume := &spec.Volumes[i]; volume.Ephemeral != nil {
			volume.VolumeSource = corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: pod + "-" +
				volume.Name}}
		}
	}
}

// Rename replaces the names of claims in a template; claims that are not in names keep theirs.
func Rename(template *corev1.PodTemplateSpec, names map[string]string) {
	for i := range template.Spec.Volumes {
		if source := template.Spec.Volumes[i].PersistentVolumeClaim; source != nil && names[source.ClaimName] != "" {
			source.ClaimName = names[source.ClaimName]
		}
	}
}

// KeepClaims copies the claims of an earlier template of the same pod. They were resolved when the
// pod was first requested, and a pod never changes its volumes.
func KeepClaims(template *corev1.PodTemplateSpec, earlier corev1.PodTemplateSpec) {
	had := map[string]string{}
	for i := range earlier.Spec.Volumes {
		if source := earlier.Spec.Volumes[i].PersistentVolumeClaim; source != nil {
			had[earlier.Spec.Volumes[i].Name] = source.ClaimName
		}
	}
	for i := range template.Spec.Volumes {
		volume := &template.Spec.Volumes[i]
		if source := volume.PersistentVolumeClaim; source != nil && had[volume.Name] != "" {
			source.ClaimName = had[volume.Name]
		}
	}
}

// foreign returns the labels or annotations without Lodestone's.
func foreign(all map[string]string) map[string]string {
	kept := maps.Clone(all)
	maps.DeleteFunc(kept, func(key, _ string) bool { return strings.HasPrefix(key, ownPrefix) })
	return kept
}

// unmarked removes the marker resource from a list, and returns nil if nothing else is in it.
func unmarked(list corev1.ResourceList) corev1.ResourceList {
	if _, marked := list[keys.MarkerResource]; !marked {
		return list
	}
	delete(list, keys.MarkerResource)
	if len(list) == 0 {
		return nil
	}
	return list
}

// eachContainer calls do for every container of a pod, ephemeral ones too.
func eachContainer(spec *corev1.PodSpec, do func(*corev1.Container)) {
	for i := range spec.InitContainers {
		do(&spec.InitContainers[i])
	}
	for i := range spec.Containers {
		do(&spec.Containers[i])
	}
	for i := range spec.EphemeralContainers {
		do((*corev1.Container)(&spec.EphemeralContainers[i].EphemeralContainerCommon))
	}
}

// fields replaces the fields that a pod reads of itself by the values of its home pod. Names,
// labels and annotations are the same there; the UID, the ServiceAccount and, if moved, the
// namespace are not. Fields of the node are those of the node there.
func fields(pod *corev1.Pod, spec *corev1.PodSpec, moved bool) {
	values := map[string]string{
		"metadata.uid":            string(pod.UID),
		"spec.serviceAccountName": pod.Spec.ServiceAccountName,
	}
	// A volume cannot hold a literal value, but labels and annotations of the remote pod can.
	paths := map[string]string{"metadata.uid": fmt.Sprintf("metadata.labels['%s']", keys.PodUID)}
	if moved {
		values["metadata.namespace"] = pod.Namespace
		paths["metadata.namespace"] = fmt.Sprintf("metadata.annotations['%s']", keys.HomeNamespace)
	}
	eachContainer(spec, func(c *corev1.Container) {
		for i := range c.Env {
			if from := c.Env[i].ValueFrom; from != nil && from.FieldRef != nil {
				if value, ok := values[from.FieldRef.FieldPath]; ok {
					c.Env[i] = corev1.EnvVar{Name: c.Env[i].Name, Value: value}
				}
			}
		}
	})
	replace := func(items []corev1.DownwardAPIVolumeFile) {
		for i := range items {
			if ref := items[i].FieldRef; ref != nil {
				if path, ok := paths[ref.FieldPath]; ok {
					ref.FieldPath = path
				}
			}
		}
	}
	for i := range spec.Volumes {
		volume := &spec.Volumes[i]
		if volume.DownwardAPI != nil {
			replace(volume.DownwardAPI.Items)
		}
		if volume.Projected != nil {
			for j := range volume.Projected.Sources {
				if source := volume.Projected.Sources[j].DownwardAPI; source != nil {
					replace(source.Items)
				}
			}
		}
	}
}

const (
	// admitted is the prefix of the volume that admission adds to every pod: a token of its
	// ServiceAccount and its companions.
	admitted = "kube-api-access-"
	// homeCA is the ConfigMap with the certificate of the API server; every namespace of every
	// cluster has its own.
	homeCA = needs.RootCA
)

// tokens removes the tokens of home's API. A pod that asks for one by annotation reads it from a
// Secret instead.
func tokens(pod *corev1.Pod, spec *corev1.PodSpec) {
	wanted := pod.Annotations[keys.Token] != ""
	dropped := map[string]bool{}
	spec.Volumes = slices.DeleteFunc(spec.Volumes, func(volume corev1.Volume) bool {
		if volume.Projected == nil || !slices.ContainsFunc(volume.Projected.Sources, isToken) {
			return false
		}
		if !wanted && strings.HasPrefix(volume.Name, admitted) {
			dropped[volume.Name] = true
			return true
		}
		var sources []corev1.VolumeProjection
		for _, source := range volume.Projected.Sources {
			if wanted {
				sources = append(sources, fromSecret(pod, source))
			} else if !isToken(source) {
				sources = append(sources, source)
			}
		}
		volume.Projected.Sources = sources
		dropped[volume.Name] = len(sources) == 0
		return len(sources) == 0
	})
	eachContainer(spec, func(c *corev1.Container) {
		c.VolumeMounts = slices.DeleteFunc(c.VolumeMounts, func(mount corev1.VolumeMount) bool { return dropped[mount.Name] })
	})
}

func isToken(source corev1.VolumeProjection) bool { return source.ServiceAccountToken != nil }

// fromSecret returns the source that replaces a projected source beside a token.
func fromSecret(pod *corev1.Pod, source corev1.VolumeProjection) corev1.VolumeProjection {
	items := []corev1.KeyToPath{}
	switch {
	case source.ServiceAccountToken != nil:
		items = append(items, corev1.KeyToPath{Key: corev1.ServiceAccountTokenKey, Path: source.ServiceAccountToken.Path})
	case source.ConfigMap != nil && source.ConfigMap.Name == homeCA:
		for _, item := range source.ConfigMap.Items {
			items = append(items, corev1.KeyToPath{Key: corev1.ServiceAccountRootCAKey, Path: item.Path, Mode: item.Mode})
		}
		if len(source.ConfigMap.Items) == 0 {
			items = append(items, corev1.KeyToPath{Key: corev1.ServiceAccountRootCAKey, Path: corev1.ServiceAccountRootCAKey})
		}
	default:
		return source
	}
	return corev1.VolumeProjection{Secret: &corev1.SecretProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: needs.Token(pod.UID)}, Items: items,
	}}
}

// placement keeps the pod's constraints that mean the same in the remote cluster: the kind of
// machine, and which pods share a node. The others selected among home's nodes and have been
// applied.
func placement(spec *corev1.PodSpec, mapped Mapping) {
	for key := range spec.NodeSelector {
		if !machine(key) {
			delete(spec.NodeSelector, key)
		}
	}
	if affinity := spec.Affinity; affinity != nil {
		spec.Affinity = nil
		kept := corev1.Affinity{
			NodeAffinity:    nodeAffinity(affinity.NodeAffinity),
			PodAffinity:     podAffinity(affinity.PodAffinity, mapped),
			PodAntiAffinity: podAntiAffinity(affinity.PodAntiAffinity, mapped),
		}
		if kept != (corev1.Affinity{}) {
			spec.Affinity = &kept
		}
	}
	spec.TopologySpreadConstraints = slices.DeleteFunc(spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
		return c.TopologyKey != corev1.LabelHostname
	})
	spec.Tolerations = slices.DeleteFunc(spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == keys.RemoteTaint })
}

// machine reports whether a node label describes the kind of machine.
func machine(label string) bool {
	return label == corev1.LabelOSStable || label == corev1.LabelArchStable
}

func machineTerm(term corev1.NodeSelectorTerm) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: slices.DeleteFunc(slices.Clone(term.MatchExpressions),
		func(r corev1.NodeSelectorRequirement) bool {
			return !machine(r.Key)
		})}
}

func nodeAffinity(affinity *corev1.NodeAffinity) *corev1.NodeAffinity {
	if affinity == nil {
		return nil
	}
	var kept corev1.NodeAffinity
	if required := affinity.RequiredDuringSchedulingIgnoredDuringExecution; required != nil {
		terms := make([]corev1.NodeSelectorTerm, 0, len(required.NodeSelectorTerms))
		for _, term := range required.NodeSelectorTerms {
			terms = append(terms, machineTerm(term))
		}
		// The terms are ORed: if one of them requires no kind of machine, neither do all together.
		if len(terms) > 0 && !slices.ContainsFunc(terms, func(t corev1.NodeSelectorTerm) bool { return len(t.MatchExpressions) == 0 }) {
			kept.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: terms}
		}
	}
	for _, preferred := range affinity.PreferredDuringSchedulingIgnoredDuringExecution {
		if preferred.Preference = machineTerm(preferred.Preference); len(preferred.Preference.MatchExpressions) > 0 {
			kept.PreferredDuringSchedulingIgnoredDuringExecution = append(kept.PreferredDuringSchedulingIgnoredDuringExecution, preferred)
		}
	}
	if kept.RequiredDuringSchedulingIgnoredDuringExecution == nil && kept.PreferredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return &kept
}

func podAffinity(affinity *corev1.PodAffinity, mapped Mapping) *corev1.PodAffinity {
	if affinity == nil {
		return nil
	}
	kept := corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution:  podTerms(affinity.RequiredDuringSchedulingIgnoredDuringExecution, mapped),
		PreferredDuringSchedulingIgnoredDuringExecution: weightedTerms(affinity.PreferredDuringSchedulingIgnoredDuringExecution, mapped),
	}
	if kept.RequiredDuringSchedulingIgnoredDuringExecution == nil && kept.PreferredDuringSchedulingIgnoredDuringExecution == nil {
		return nil
	}
	return &kept
}

func podAntiAffinity(affinity *corev1.PodAntiAffinity, mapped Mapping) *corev1.PodAntiAffinity {
	if affinity == nil {
		return nil
	}
	kept := podAffinity(&corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution:  affinity.RequiredDuringSchedulingIgnoredDuringExecution,
		PreferredDuringSchedulingIgnoredDuringExecution: affinity.PreferredDuringSchedulingIgnoredDuringExecution,
	}, mapped)
	if kept == nil {
		return nil
	}
	return &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution:  kept.RequiredDuringSchedulingIgnoredDuringExecution,
		PreferredDuringSchedulingIgnoredDuringExecution: kept.PreferredDuringSchedulingIgnoredDuringExecution,
	}
}

func podTerms(terms []corev1.PodAffinityTerm, mapped Mapping) []corev1.PodAffinityTerm {
	var kept []corev1.PodAffinityTerm
	for _, term := range terms {
		if term.TopologyKey == corev1.LabelHostname {
			kept = append(kept, mapTerm(term, mapped))
		}
	}
	return kept
}

func weightedTerms(terms []corev1.WeightedPodAffinityTerm, mapped Mapping) []corev1.WeightedPodAffinityTerm {
	var kept []corev1.WeightedPodAffinityTerm
	for _, term := range terms {
		if term.PodAffinityTerm.TopologyKey == corev1.LabelHostname {
			term.PodAffinityTerm = mapTerm(term.PodAffinityTerm, mapped)
			kept = append(kept, term)
		}
	}
	return kept
}

func mapTerm(term corev1.PodAffinityTerm, mapped Mapping) corev1.PodAffinityTerm {
	names := make([]string, len(term.Namespaces))
	for i, name := range term.Namespaces {
		names[i] = mapped(name)
	}
	if len(names) > 0 {
		term.Namespaces = names
	}
	return term
}

// homeAPI has the containers of a pod that has a token of home's API find home's API server, at the given URL,
// where clients in pods look for it: in the variables that a kubelet would set, and by name where the host is an address.
// What a container sets itself stays.
func homeAPI(pod *corev1.Pod, spec *corev1.PodSpec, server string) {
	at, err := url.Parse(server)
	if err != nil || at.Hostname() == "" || pod.Annotations[keys.Token] == "" {
		return
	}
	port := cmp.Or(at.Port(), "443")
	variables := []corev1.EnvVar{
		{Name: "KUBERNETES_SERVICE_HOST", Value: at.Hostname()},
		{Name: "KUBERNETES_SERVICE_PORT", Value: port},
		{Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: port},
	}
	eachContainer(spec, func(c *corev1.Container) {
		// First, so that the container's own variables can refer to them.
		c.Env = slices.Concat(slices.DeleteFunc(slices.Clone(variables), func(v corev1.EnvVar) bool {
			return slices.ContainsFunc(c.Env, func(own corev1.EnvVar) bool { return own.Name == v.Name })
		}), c.Env)
	})
	if _, err := netip.ParseAddr(at.Hostname()); err == nil {
		spec.HostAliases = append(spec.HostAliases, corev1.HostAlias{IP: at.Hostname(), Hostnames: []string{
			"kubernetes.default.svc", "kubernetes.default", "kubernetes.default.svc.cluster.local"}})
	}
}
