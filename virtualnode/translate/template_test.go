package translate

import (
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
		c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}}
		c.VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-db-0"}}}}
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
	assert.Equal(t, *want, Template(pod, same).Spec)
	assert.Equal(t, before, pod, "the home pod is not changed")
}

func TestTemplateDropsWhatOnlyHomeKnows(t *testing.T) {
	spec := Template(homePod(func(p *corev1.Pod) {
		p.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
		p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "gate"}}
		p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "lb"}}
		p.Spec.Overhead = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}
		p.Spec.Tolerations = []corev1.Toleration{
			{Key: keys.RemoteTaint, Operator: corev1.TolerationOpExists},
			{Key: "gpu", Operator: corev1.TolerationOpExists},
		}
	}), same).Spec
	assert.Empty(t, spec.NodeName)
	assert.Empty(t, spec.EphemeralContainers)
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
	spec := Template(pod, same).Spec
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
	}), same)
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
		"the name is the same":                    {path: "metadata.name", mapped: suffixed, env: field("metadata.name"), volume: "metadata.name"},
		"a label is the same":                     {path: "metadata.labels['app']", mapped: suffixed, env: field("metadata.labels['app']"), volume: "metadata.labels['app']"},
		"the node is the one there":               {path: "spec.nodeName", mapped: suffixed, env: field("spec.nodeName"), volume: "spec.nodeName"},
		"the namespace of the same name":          {path: "metadata.namespace", mapped: same, env: field("metadata.namespace"), volume: "metadata.namespace"},
		"the namespace of another name":           {path: "metadata.namespace", mapped: suffixed, env: literal("shop"), volume: namespace},
		"the UID":                                 {path: "metadata.uid", mapped: same, env: literal("u1"), volume: uid},
		"the ServiceAccount, which no volume has": {path: "spec.serviceAccountName", mapped: same, env: literal("robot"), volume: "spec.serviceAccountName"},
	} {
		t.Run(name, func(t *testing.T) {
			items := []corev1.DownwardAPIVolumeFile{{Path: "f", FieldRef: &corev1.ObjectFieldSelector{FieldPath: test.path}}}
			spec := Template(homePod(func(p *corev1.Pod) {
				p.Spec.InitContainers = []corev1.Container{{Name: "init", Env: []corev1.EnvVar{field(test.path)}}}
				p.Spec.Containers[0].Env = []corev1.EnvVar{literal("1"), field(test.path)}
				p.Spec.Volumes = []corev1.Volume{
					{Name: "a", VolumeSource: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: items}}},
					{Name: "b", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{DownwardAPI: &corev1.DownwardAPIProjection{Items: items}}}}}},
				}
			}), test.mapped).Spec
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
	other := corev1.VolumeProjection{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "settings"}}}
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
		"admission's volume goes":                {volume: "kube-api-access-x7", sources: []corev1.VolumeProjection{token, authority}},
		"a token of the user's goes":             {volume: "mine", sources: []corev1.VolumeProjection{token, other}, want: []corev1.VolumeProjection{other}},
		"a volume of nothing but a token goes":   {volume: "mine", sources: []corev1.VolumeProjection{token}},
		"what has no token stays":                {volume: "mine", sources: []corev1.VolumeProjection{authority, other}, want: []corev1.VolumeProjection{authority, other}},
		"a wanted token comes from a Secret":     {volume: "kube-api-access-x7", sources: []corev1.VolumeProjection{token, authority}, wanted: true, want: []corev1.VolumeProjection{secret("token"), secret("ca.crt")}},
		"what is beside a wanted token is there": {volume: "mine", sources: []corev1.VolumeProjection{token, other}, wanted: true, want: []corev1.VolumeProjection{secret("token"), other}},
	} {
		t.Run(name, func(t *testing.T) {
			spec := Template(homePod(func(p *corev1.Pod) {
				if test.wanted {
					p.Annotations = map[string]string{keys.Token: "home"}
				}
				p.Spec.Volumes = []corev1.Volume{{Name: test.volume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: test.sources}}}}
				p.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: test.volume, MountPath: "/m"}}
			}), same).Spec
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
