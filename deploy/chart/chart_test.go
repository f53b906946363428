package main

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/deploy/changelog"
	"github.com/lodestone-storage/lodestone/kubectl-lodestone/install"
)

const version = "v0.3.0"

// helm runs the program that HELM names, and returns what it prints.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	program := os.Getenv("HELM")
	if program == "" {
		if os.Getenv("LODESTONE_COMPLETE") != "" {
			require.Fail(t, "HELM names no program: make unit does that")
		}
		t.Skip("HELM names no program: make unit does that")
	}
	output, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	return string(output), err
}

// made is the chart, which takes some seconds.
var made = sync.OnceValues(func() (map[string]string, error) { return contents(version, changes) })

// changes are those of a changelog.
const changes = "\n## [0.3.0] - 2026-01-01\n\n### Added\n\n- What is [new](docs/new.md).\n"

func chart(t *testing.T) string {
	t.Helper()
	content, err := made()
	require.NoError(t, err)
	directory := filepath.Join(t.TempDir(), "lodestone")
	require.NoError(t, write(directory, content))
	return directory
}

// render returns the objects of the chart with values.
func render(t *testing.T, chart string, values install.Values, role string) []*unstructured.Unstructured {
	t.Helper()
	file := filepath.Join(t.TempDir(), "values.yaml")
	content, err := yaml.Marshal(values)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(file, content, 0o600))
	output, err := helm(t, "template", "lodestone", chart, "--values", file, "--set", "role="+role, "--kube-version", "v1.36.3")
	require.NoError(t, err, output)
	return objects(t, output)
}

func objects(t *testing.T, text string) (all []*unstructured.Unstructured) {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(object)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		if len(object.Object) > 0 {
			all = append(all, object)
		}
	}
}

// text returns each object as text, without what a chart alone has. A patch of a container may put it before others.
func text(t *testing.T, objects []*unstructured.Unstructured) map[string]string {
	t.Helper()
	revision := regexp.MustCompile(`-1$`)
	all := map[string]string{}
	for _, object := range objects {
		object = object.DeepCopy()
		if annotations := object.GetAnnotations(); annotations["helm.sh/resource-policy"] == "keep" {
			require.Contains(t, kept, object.GetKind())
			delete(annotations, "helm.sh/resource-policy")
			if len(annotations) == 0 {
				annotations = nil
			}
			object.SetAnnotations(annotations)
		}
		if object.GetKind() == "Job" {
			object.SetName(revision.ReplaceAllString(object.GetName(), ""))
		}
		if containers, found, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers"); found && err == nil {
			slices.SortFunc(containers, func(a, b any) int {
				return strings.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
			})
			require.NoError(t, unstructured.SetNestedSlice(object.Object, containers, "spec", "template", "spec", "containers"))
		}
		content, err := yaml.Marshal(object.Object)
		require.NoError(t, err)
		id := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
		require.NotContains(t, all, id)
		all[id] = string(content)
	}
	return all
}

func TestTheChartIsWhatInstallApplies(t *testing.T) {
	directory := chart(t)
	base := install.Values{Registry: install.DefaultRegistry, Tag: version, Replicas: ptr.To(int32(2))}
	all := base
	all.Registry, all.Tag, all.PullSecret, all.Replicas = "registry.example.com:5000/l", "v9", "pull", ptr.To(int32(3))
	all.NodeSelector = map[string]string{"pool": "system", "kubernetes.io/os": "linux"}
	all.Resources = map[string]corev1.ResourceRequirements{
		"provisioner": {Limits: corev1.ResourceList{"memory": resource.MustParse("2Gi")}},
		"extender":    {Requests: corev1.ResourceList{"cpu": resource.MustParse("2")}},
		"webhook":     {Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi")}},
		"network":     {Limits: corev1.ResourceList{"memory": resource.MustParse("1Gi")}},
	}
	home := func(v install.Values, scheduler, certificates string, virtualNodes, monitoring bool) install.Values {
		v.Scheduler, v.Certificates, v.Admission = scheduler, certificates, install.Policies
		v.VirtualNodes, v.Monitoring = &virtualNodes, &monitoring
		if scheduler == install.Second {
			v.KubeScheduler, v.KubeSchedulerImage = "v1.36.3", "registry.example.com/kube-scheduler"
		}
		return v
	}
	withWebhook := func(v install.Values) install.Values {
		v.Admission = install.Webhook
		return v
	}
	with := func(v install.Values, network, services, profiles bool) install.Values {
		v.Network, v.Services, v.ClusterProfiles = &network, &services, &profiles
		return v
	}
	marked := func(v install.Values) install.Values {
		v.Marker = ptr.To(true)
		return v
	}
	for name, test := range map[string]struct {
		values install.Values
		role   string
	}{
		"pods that are marked":             {marked(home(base, install.Extender, install.ByJob, true, false)), "home"},
		"pods that a webhook marks":        {marked(withWebhook(home(base, install.Extender, install.ByJob, true, false))), "home"},
		"as it is":                         {home(base, install.Extender, install.ByJob, true, false), "home"},
		"certificates of others":           {home(base, install.Extender, install.ByCertManager, true, true), "home"},
		"a second scheduler":               {home(base, install.Second, "", true, false), "home"},
		"without virtual nodes":            {home(base, install.Extender, install.ByJob, false, true), "home"},
		"a second one without nodes":       {home(base, install.Second, "", false, true), "home"},
		"all that can be said":             {home(all, install.Extender, install.ByJob, true, true), "home"},
		"that with a second scheduler":     {home(all, install.Second, "", true, true), "home"},
		"a webhook":                        {withWebhook(home(all, install.Extender, install.ByJob, true, true)), "home"},
		"a webhook and a second scheduler": {withWebhook(home(all, install.Second, install.ByCertManager, true, false)), "home"},
		"the network":                      {with(home(base, install.Extender, install.ByJob, true, false), true, false, false), "home"},
		"services of several clusters":     {with(home(base, install.Second, "", true, false), false, true, false), "home"},
		"profiles without virtual nodes":   {with(home(base, install.Extender, install.ByJob, false, true), false, false, true), "home"},
		"all components": {with(withWebhook(home(all, install.Second, install.ByCertManager, true, true)), true, true, true),
			"home"},
		"a remote cluster":                {base, "remote"},
		"a remote cluster with all":       {with(all, true, true, false), "remote"},
		"a remote cluster with services":  {with(base, false, true, false), "remote"},
		"a remote cluster with a network": {with(all, true, false, false), "remote"},
	} {
		t.Run(name, func(t *testing.T) {
			want, err := install.Build(test.values, test.role == remote)
			require.NoError(t, err)
			given := test.values
			if given.Scheduler == install.Second {
				given.KubeScheduler = "" // that of the cluster
			}
			wanted, rendered := text(t, want), text(t, render(t, directory, given, test.role))
			require.Equal(t, slices.Sorted(maps.Keys(wanted)), slices.Sorted(maps.Keys(rendered)))
			for id := range wanted {
				assert.Equal(t, wanted[id], rendered[id], id)
			}
		})
	}
}

// TestArtifactHubIsToldWhatTheChartHas compares what Chart.yaml tells with the objects of the chart.
func TestArtifactHubIsToldWhatTheChartHas(t *testing.T) {
	content, err := made()
	require.NoError(t, err)
	var read struct{ Annotations map[string]string }
	require.NoError(t, yaml.Unmarshal([]byte(content["Chart.yaml"]), &read))
	annotation := func(name string, into any) {
		require.NoError(t, yaml.UnmarshalStrict([]byte(read.Annotations["artifacthub.io/"+name]), into), name)
	}
	assert.Equal(t, "Apache-2.0", read.Annotations["artifacthub.io/license"])
	assert.Equal(t, "false", read.Annotations["artifacthub.io/prerelease"])
	assert.NotContains(t, read.Annotations, "artifacthub.io/signKey", "nobody signs it by a key")

	var images []hubImage
	annotation("images", &images)
	var named []string
	for _, image := range images {
		assert.Equal(t, install.DefaultRegistry+"/"+image.Name+":"+version, image.Image)
		named = append(named, image.Name)
	}
	list, err := os.ReadFile("../../deploy/components/release-images/kustomization.yaml")
	require.NoError(t, err)
	released := regexp.MustCompile(`/(lodestone-[a-z-]+)(?::v\S+)?\n`).FindAllStringSubmatch(string(list), -1)
	var wanted []string
	for _, match := range released {
		wanted = append(wanted, match[1])
	}
	assert.ElementsMatch(t, wanted, named, "the images of a release")

	var definitions []hubDefinition
	annotation("crds", &definitions)
	names := map[string]hubDefinition{}
	for _, d := range definitions {
		assert.NotEmpty(t, d.Description, d.Name)
		assert.NotContains(t, d.Description, "\n", d.Name)
		names[d.Name] = d
	}
	defined := regexp.MustCompile(`(?m)^  name: ([a-z]+\.(?:[a-z]+\.)?lodestone\.dev)$`)
	for _, role := range []string{home, remote} {
		for _, match := range defined.FindAllStringSubmatch(content["templates/"+role+".yaml"], -1) {
			assert.Contains(t, names, match[1])
		}
	}
	assert.Len(t, names, 7)
	assert.Equal(t, "v1beta1", names["remoteclusters.lodestone.dev"].Version)
	assert.Equal(t, "v1alpha1", names["shadowpods.remote.lodestone.dev"].Version)

	var examples []map[string]any
	annotation("crdsExamples", &examples)
	require.NotEmpty(t, examples)
	for _, example := range examples {
		assert.NotEmpty(t, example["spec"], example["kind"])
	}
	var said []changelog.Change
	annotation("changes", &said)
	assert.Equal(t, []changelog.Change{{Kind: "added", Description: "What is new."}}, said)
	var links []hubLink
	annotation("links", &links)
	for _, link := range links {
		assert.Regexp(t, `^https://github\.com/lodestone-storage/lodestone`, link.URL)
	}
	plain, err := annotate("annotations: {}\nversion: v1", "v0.4.0", changes, nil)
	require.NoError(t, err)
	assert.NotContains(t, plain, "artifacthub.io/changes", "a version of which nothing is said")
}

func TestTheSchemaRefusesWhatIsWrong(t *testing.T) {
	directory := chart(t)
	output, err := helm(t, "lint", "--strict", directory)
	require.NoError(t, err, output)
	for set, says := range map[string]string{
		"kubeSchedulerImage=kube-scheduler": "kubeSchedulerImage", "marker=1": "marker", "marker=true,scheduler=second": "marker",
		"role=both": "role", "admission=none": "admission", "network=1": "network", "services=1": "services",
		"clusterProfiles=1":               "clusterProfiles",
		"network=true,virtualNodes=false": "network", "services=true,virtualNodes=false": "services",
		"registry=https://r": "registry", "tag=a b": "tag", "pullSecret=No": "pullSecret", "replicas=0": "replicas",
		"replicas=many": "replicas", "scheduler=none": "scheduler", "certificates=me": "certificates", "virtualNodes=1": "virtualNodes",
		"monitoring=no way": "monitoring", "resources.etcd.limits.cpu=1": "etcd", "resources.extender.claims=1": "claims",
		"kubeScheduler=1.36": "kubeScheduler", "replica=2": "replica", "nodeSelector=pool": "nodeSelector",
	} {
		output, err := helm(t, "template", "lodestone", directory, "--set", set)
		require.Error(t, err, set)
		assert.Contains(t, output, says, set)
	}
}

// TestTheDefaultsAreAValueEach has each value of the chart in its schema, and each of install in the chart.
func TestTheDefaultsAreAValueEach(t *testing.T) {
	content, err := files.ReadFile("files/values.yaml")
	require.NoError(t, err)
	values := map[string]any{}
	require.NoError(t, yaml.Unmarshal(content, &values))
	content, err = files.ReadFile("files/values.schema.json")
	require.NoError(t, err)
	var schema struct{ Properties map[string]any }
	require.NoError(t, json.Unmarshal(content, &schema))
	for value := range values {
		assert.Contains(t, schema.Properties, value)
	}
	for _, value := range install.ValueNames() {
		if value != "openShift" { // docs/install.md says so
			assert.Contains(t, values, value)
		}
	}
}
