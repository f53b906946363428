package translate

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/pkg/keys"
)

func same(namespace string) string { return namespace }

func suffixed(namespace string) string { return namespace + "-h1" }

// homePod returns a pod as it is once a scheduler has bound it.
func homePod(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db-0", UID: "u1"},
		Spec: corev1.PodSpec{
			NodeName: "west", SchedulerName: "default-scheduler", ServiceAccountName: "robot", DeprecatedServiceAccount: "robot",
			RestartPolicy: corev1.RestartPolicyAlways,
			Priority:      ptr.To(int32(5)), PriorityClassName: "high", PreemptionPolicy: ptr.To(corev1.PreemptLowerPriority),
			Containers: []corev1.Container{{Name: "app", Image: "app:1"}},
		},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func TestTemplateKeepsWhatThePodSaysOfItself(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	pod := homePod(func(p *corev1.Pod) {
		p.Spec.RestartPolicy = corev1.RestartPolicyOnFailure
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "init:1"}, {Name: "sidecar", Image: "side:1", RestartPolicy: &always}}
		c := &p.Spec.Containers[0]
		c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"true"}}}}
		c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: 3}}}
		c.EnvFrom = []corev1.EnvFromSource{
			{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}},
		}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		p.Spec.Volumes = []corev1.Volume{{Name: "data",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"}}}}
		p.Spec.TerminationGracePeriodSeconds = ptr.To(int64(7))
		p.Spec.ActiveDeadlineSeconds = ptr.To(int64(70))
		p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsUser: ptr.To(int64(1000))}
		p.Spec.HostAliases = []corev1.HostAlias{{IP: "10.0.0.1", Hostnames: []string{"db"}}}
		p.Spec.Hostname, p.Spec.Subdomain, p.Spec.SetHostnameAsFQDN = "db-0", "db", ptr.To(true)
		p.Spec.DNSPolicy, p.Spec.DNSConfig = corev1.DNSClusterFirst, &corev1.PodDNSConfig{Searches: []string{"shop.test"}}
		p.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "pull"}}
		p.Spec.RuntimeClassName = ptr.To("sandbox")
		p.Spec.OS = &corev1.PodOS{Name: corev1.Linux}
		p.Spec.ShareProcessNamespace = ptr.To(true)
	})
	want := pod.Spec.DeepCopy()
	want.NodeName, want.SchedulerName, want.ServiceAccountName, want.DeprecatedServiceAccount = "", "", "", ""
	want.Priority, want.PreemptionPolicy = nil, nil
	want.AutomountServiceAccountToken, want.EnableServiceLinks = ptr.To(false), ptr.To(false)
	before := pod.DeepCopy()
	assert.Equal(t, *want, Template(pod, same, "").Spec)
	assert.Equal(t, before, pod, "the home pod is not changed")
}

func TestTemplateDropsWhatOnlyHomeKnows(t *testing.T) {
	spec := Template(homePod(func(p *corev1.Pod) {
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "gate"}}
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "lb"}}
		p.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		p.Spec.Tolerations = []corev1.Toleration{
			{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists},
			{Key: "gpu", Operator: corev1.TolerationOpExists},
		}
	}), same, "").Spec
	assert.Empty(t, spec.NodeName)
	assert.Empty(t, spec.SchedulingGates)
	assert.Empty(t, spec.ReadinessGates)
	assert.Empty(t, spec.Overhead)
	assert.Equal(t, "high", spec.PriorityClassName)
	assert.Equal(t, []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}}, spec.Tolerations)
}

func TestTemplateDropsTheMarkerOfHomesScheduler(t *testing.T) {
	one, cpu := resource.MustParse("1"), resource.MustParse("250m")
	marker := corev1.ResourceList{keys.MarkerResource: one}
	pod := homePod(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Name: "init", Resources: corev1.ResourceRequirements{Requests: marker, Limits: marker}}}
		p.Spec.Containers[0].Resources = corev1.ResourceRequirements{
			Requests: corev1.ResourceList{keys.MarkerResource: one, corev1.ResourceCPU: cpu, "example.com/gpu": one},
			Limits:   corev1.ResourceList{keys.MarkerResource: one, "example.com/gpu": one},
		}
	})
	before := pod.DeepCopy()
	spec := Template(pod, same, "").Spec
	assert.Equal(t, corev1.ResourceRequirements{}, spec.InitContainers[0].Resources)
	assert.Equal(t, corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: cpu, "example.com/gpu": one},
		Limits:   corev1.ResourceList{"example.com/gpu": one},
	}, spec.Containers[0].Resources)
	assert.Equal(t, before, pod, "the home pod is not changed")
}

func TestTemplateKeepsForeignLabelsAndAnnotations(t *testing.T) {
	template := Template(homePod(func(p *corev1.Pod) {
		p.Labels = map[string]string{"app": "db", keys.PodUID: "forged"}
		p.Annotations = map[string]string{"note": "kept", lastApplied: "{}", keys.RemoteCopy: "c/s", keys.RemoteIP: "10.0.0.1"}
	}), same, "")
	assert.Equal(t, map[string]string{"app": "db"}, template.Labels)
	assert.Equal(t, map[string]string{"note": "kept", keys.HomeNamespace: "shop"}, template.Annotations)
}

func TestDownwardFieldsStayTrueToTheHomePod(t *testing.T) {
	field := func(path string) corev1.EnvVar {
		return corev1.EnvVar{Name: "V", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
	}
	literal := func(value string) corev1.EnvVar { return corev1.EnvVar{Name: "V", Value: value} }
	uid, namespace := "metadata.labels['lodestone.dev/pod-uid']", "metadata.annotations['lodestone.dev/home-namespace']"
	for name, test := range map[string]struct {
		path   string
		mapped Mapping
		env    corev1.EnvVar
		volume string
	}{
		"the name is the same": {path: "metadata.name", mapped: suffixed, env: field("metadata.name"),
			volume: "metadata.name"},
		"a label is the same": {path: "metadata.labels['app']", mapped: suffixed, env: field("metadata.labels['app']"),
			volume: "metadata.labels['app']"},
		"the node is the one there": {path: "spec.nodeName", mapped: suffixed, env: field("spec.nodeName"),
			volume: "spec.nodeName"},
		"the namespace of the same name": {path: "metadata.namespace", mapped: same, env: field("metadata.namespace"),
			volume: "metadata.namespace"},
		"the namespace of another name": {path: "metadata.namespace", mapped: suffixed, env: literal("shop"), volume: namespace},
		"the UID":                       {path: "metadata.uid", mapped: same, env: literal("u1"), volume: uid},
		"the ServiceAccount, which no volume has": {path: "spec.serviceAccountName", mapped: same, env: literal("robot"),
			volume: "spec.serviceAccountName"},
	} {
		t.Run(name, func(t *testing.T) {
			items := []corev1.DownwardAPIVolumeFile{{Path: "f", FieldRef: &corev1.ObjectFieldSelector{FieldPath: test.path}}}
			spec := Template(homePod(func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{{Name: "init", Env: []corev1.EnvVar{field(test.path)}}}
				p.Spec.Containers[0].Env = []corev1.EnvVar{literal("1"), field(test.path)}
				p.Spec.Volumes = []corev1.Volume{
					{Name: "a", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: items}}},
					{Name: "b",
						VolumeSource: corev1.VolumeSource{
							Projected: &corev1.ProjectedVolumeSource{
								Sources: []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: items}}},
							},
						}},
				}
			}), test.mapped, "").Spec
			assert.Equal(t, test.env, spec.InitContainers[0].Env[0])
			assert.Equal(t, []corev1.EnvVar{literal("1"), test.env}, spec.Containers[0].Env)
			assert.Equal(t, test.volume, spec.Volumes[0].DownwardAPI.Items[0].FieldRef.FieldPath)
			assert.Equal(t, test.volume, spec.Volumes[1].Projected.Sources[0].DownwardAPI.Items[0].FieldRef.FieldPath)
		})
	}
}

func TestHomeTokensTravelOnlyOnRequest(t *testing.T) {
	token := corev1.VolumeProjection{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}}
	authority := corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{
		LocalObjectReference: corev1.LocalObjectReference{Name: homeCA}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}}
	other := corev1.VolumeProjection{
		ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}},
	}
	secret := func(key string) corev1.VolumeProjection {
		return corev1.VolumeProjection{Secret: &corev1.SecretProjection{
			LocalObjectReference: corev1.LocalObjectReference{Name: "lodestone-token-u1"}, Items: []corev1.KeyToPath{{Key: key, Path: key}}}}
	}
	for name, test := range map[string]struct {
		volume  string
		sources []corev1.VolumeProjection
		wanted  bool
		want    []corev1.VolumeProjection // nil: neither volume nor mount
	}{
		"admission's volume goes": {volume: "kube-api-access-x7", sources: []corev1.VolumeProjection{token, authority}},
		"a token of the user's goes": {volume: "mine", sources: []corev1.VolumeProjection{token, other},
			want: []corev1.VolumeProjection{other}},
		"a volume of nothing but a token goes": {volume: "mine", sources: []corev1.VolumeProjection{token}},
		"what has no token stays": {volume: "mine", sources: []corev1.VolumeProjection{authority, other},
			want: []corev1.VolumeProjection{authority, other}},
		"a wanted token comes from a Secret": {volume: "kube-api-access-x7", sources: []corev1.VolumeProjection{token, authority},
			wanted: true, want: []corev1.VolumeProjection{secret("token"), secret("ca.crt")}},
		"what is beside a wanted token is there": {volume: "mine", sources: []corev1.VolumeProjection{token, other}, wanted: true,
			want: []corev1.VolumeProjection{secret("token"), other}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := Template(homePod(func(p *corev1.Pod) {
				if test.wanted {
					p.Annotations = map[string]string{keys.Token: "home"}
				}
				p.Spec.Volumes = []corev1.Volume{{Name: test.volume,
					VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: test.sources}}}}
				p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: test.volume, MountPath: "/m"}}
			}), same, "").Spec
			if test.want == nil {
				assert.Empty(t, spec.Volumes)
				assert.Empty(t, spec.Containers[0].VolumeMounts)
				return
			}
			assert.Equal(t, test.want, spec.Volumes[0].Projected.Sources)
			assert.Len(t, spec.Containers[0].VolumeMounts, 1)
		})
	}
}

func in(key string, values ...string) corev1.NodeSelectorRequirement {
	return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
}

func term(requirements ...corev1.NodeSelectorRequirement) corev1.NodeSelectorTerm {
	return corev1.NodeSelectorTerm{MatchExpressions: requirements}
}

func required(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
	return &corev1.Affinity{
		NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}},
	}
}

func preferred(terms ...corev1.NodeSelectorTerm) *corev1.Affinity {
	var weighted []corev1.PreferredSchedulingTerm
	for _, t := range terms {
		weighted = append(weighted, corev1.PreferredSchedulingTerm{Weight: 1, Preference: t})
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: weighted}}
}

func TestNodeAffinityKeepsOnlyTheKindOfMachine(t *testing.T) {
	arm, west, zone := in(corev1.LabelArchStable, "arm64"), in(keys.Cluster, "west"), in(corev1.LabelTopologyZone, "a")
	for name, test := range map[string]struct{ affinity, want *corev1.Affinity }{
		"none":                                {},
		"only what chose the virtual node":    {affinity: required(term(west, zone))},
		"a kind of machine beside it":         {affinity: required(term(west, arm)), want: required(term(arm))},
		"an alternative that is for anything": {affinity: required(term(arm), term(west))},
		"two kinds":                           {affinity: required(term(arm), term(zone, arm)), want: required(term(arm), term(arm))},
		"a node by its name": {
			affinity: required(corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{in("metadata.name", "west")}}),
		},
		"a wish for a kind of machine": {affinity: preferred(term(arm), term(zone)), want: preferred(term(arm))},
		"a wish for a place":           {affinity: preferred(term(zone))},
	} {
		t.Run(name, func(t *testing.T) {
			pod := homePod(func(p *corev1.Pod) { p.Spec.Affinity = test.affinity })
			before := pod.DeepCopy()
			assert.Equal(t, test.want, Template(pod, same, "").Spec.Affinity)
			assert.Equal(t, before, pod)
		})
	}
}

func TestNodeSelectorKeepsOnlyTheKindOfMachine(t *testing.T) {
	spec := Template(homePod(func(p *corev1.Pod) {
		p.Spec.NodeSelector = map[string]string{corev1.LabelOSStable: "linux", corev1.LabelHostname: "west", keys.Cluster: "west", "disk": "ssd"}
	}), same, "").Spec
	assert.Equal(t, map[string]string{corev1.LabelOSStable: "linux"}, spec.NodeSelector)
}

func TestPodAffinityIsKeptForNodesThatAreShared(t *testing.T) {
	at := func(key string, namespaces ...string) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{TopologyKey: key, Namespaces: namespaces}
	}
	weighted := func(t corev1.PodAffinityTerm) corev1.WeightedPodAffinityTerm {
		return corev1.WeightedPodAffinityTerm{Weight: 1, PodAffinityTerm: t}
	}
	spec := Template(homePod(func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{
			PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				at(corev1.LabelTopologyZone), at(corev1.LabelHostname, "other"),
			}},
			PodAntiAffinity: &corev1.PodAntiAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
				weighted(at(corev1.LabelHostname)), weighted(at("rack")),
			}},
		}
		p.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{TopologyKey: corev1.LabelTopologyZone},
			{TopologyKey: corev1.LabelHostname}}
	}), suffixed, "").Spec
	assert.Equal(t, &corev1.Affinity{
		PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{at(corev1.LabelHostname,
			"other-h1")}},
		PodAntiAffinity: &corev1.PodAntiAffinity{
			PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{weighted(at(corev1.LabelHostname))},
		},
	}, spec.Affinity)
	assert.Equal(t, []corev1.TopologySpreadConstraint{{TopologyKey: corev1.LabelHostname}}, spec.TopologySpreadConstraints)

	zoned := Template(homePod(func(p *corev1.Pod) {
		p.Spec.Affinity = &corev1.Affinity{
			PodAffinity:     &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{at("rack")}},
			PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{at("rack")}},
		}
	}), same, "").Spec
	assert.Nil(t, zoned.Affinity)
}

func TestGenericEphemeralVolumesUseTheClaimsThatHomeMade(t *testing.T) {
	pod := homePod(func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{
			{Name: "scratch",
				VolumeSource: corev1.VolumeSource{
					Ephemeral: &corev1.EphemeralVolumeSource{VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{}},
				}},
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data",
				ReadOnly: true}}},
			{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		}
	})
	before := pod.DeepCopy()
	assert.Equal(t, []corev1.Volume{
		{Name: "scratch",
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "db-0-scratch"}}},
		pod.Spec.Volumes[1], pod.Spec.Volumes[2],
	}, Template(pod, same, "").Spec.Volumes)
	assert.Equal(t, before, pod)
}

func TestClaimsThatHaveAnotherNameThereKeepIt(t *testing.T) {
	claim := func(name, claim string) corev1.Volume {
		return corev1.Volume{Name: name,
			VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}
	}
	pod := homePod(func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{claim("data", "data"), claim("again", "data"), claim("log", "log"),
			{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	})
	first := Template(pod, same, "")
	Rename(&first, map[string]string{"data": "pvc-u1-1", "log": "log", "other": "x"})
	want := []corev1.Volume{claim("data", "pvc-u1-1"), claim("again", "pvc-u1-1"), claim("log", "log"), pod.Spec.Volumes[3]}
	assert.Equal(t, want, first.Spec.Volumes)

	later := Template(pod, same, "")
	KeepClaims(&later, first)
	assert.Equal(t, want, later.Spec.Volumes)
	untouched := Template(pod, same, "")
	KeepClaims(&untouched, corev1.PodTemplateSpec{})
	assert.Equal(t, pod.Spec.Volumes, untouched.Spec.Volumes)
}

func TestAPodThatHasATokenFindsTheAPIOfHome(t *testing.T) {
	of := func(server string, change func(*corev1.Pod)) corev1.PodSpec {
		return Template(homePod(func(p *corev1.Pod) {
			p.Annotations = map[string]string{keys.Token: keys.HomeAudience}
			p.Spec.InitContainers = []corev1.Container{{Name: "init", Image: "init:1"}}
			if change != nil {
				change(p)
			}
		}), same, server).Spec
	}
	variables := func(host, port string) []corev1.EnvVar {
		return []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: host}, {Name: "KUBERNETES_SERVICE_PORT", Value: port},
			{Name: "KUBERNETES_SERVICE_PORT_HTTPS", Value: port}}
	}
	names := []string{"kubernetes.default.svc", "kubernetes.default", "kubernetes.default.svc.cluster.local"}

	spec := of("https://203.0.113.10:6443", nil)
	assert.Equal(t, variables("203.0.113.10", "6443"), spec.Containers[0].Env)
	assert.Equal(t, variables("203.0.113.10", "6443"), spec.InitContainers[0].Env)
	assert.Equal(t, []corev1.HostAlias{{IP: "203.0.113.10", Hostnames: names}}, spec.HostAliases)

	spec = of("https://[2001:db8::1]", nil)
	assert.Equal(t, variables("2001:db8::1", "443"), spec.Containers[0].Env)
	assert.Equal(t, []corev1.HostAlias{{IP: "2001:db8::1", Hostnames: names}}, spec.HostAliases)

	spec = of("https://api.example.com/", nil)
	assert.Equal(t, variables("api.example.com", "443"), spec.Containers[0].Env)
	assert.Empty(t, spec.HostAliases, "what is no address has no alias")

	own := []corev1.EnvVar{{Name: "KUBERNETES_SERVICE_HOST", Value: "mine"}, {Name: "API", Value: "$(KUBERNETES_SERVICE_PORT)"}}
	spec = of("https://203.0.113.10:6443", func(p *corev1.Pod) { p.Spec.Containers[0].Env = own })
	assert.Equal(t, slices.Concat(variables("", "6443")[1:], own), spec.Containers[0].Env,
		"what a container sets itself stays, and comes last")

	for name, spec := range map[string]corev1.PodSpec{
		"no server": of("", nil),
		"no token":  of("https://203.0.113.10:6443", func(p *corev1.Pod) { p.Annotations = nil }),
		"no URL":    of("https://%zz", nil),
	} {
		assert.Empty(t, spec.Containers[0].Env, name)
		assert.Empty(t, spec.HostAliases, name)
	}
}
