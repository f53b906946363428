package install

import (
	"fmt"
	"io/fs"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/kustomize/kyaml/resid"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/deploy"
)

// repository is where GitOps tools find the manifests.
const repository = "https://github.com/lodestone-storage/lodestone"

// inRepository returns where a folder of deploy/ is in the repository, at a tag, branch or commit.
func inRepository(ref string) func(folder string) string {
	return func(folder string) string { return repository + "//deploy/" + folder + "?ref=" + ref }
}

// Kustomization is what is installed, in words of kustomize. at says where a folder of deploy/ is. It is pure.
func Kustomization(v Values, remote bool, at func(folder string) string) (types.Kustomization, error) {
	k := types.Kustomization{TypeMeta: types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind}}
	type component struct {
		wanted bool
		folder string
	}
	openShift, network, services := ptr.Deref(v.OpenShift, false), ptr.Deref(v.Network, false), ptr.Deref(v.Services, false)
	base, programs, components := "remote", []string{"remote-agent"}, []component{
		{openShift, "openshift-remote"}, {network, "network-remote"}, {services, "services-remote"},
	}
	if !remote {
		base, programs, components = "base", []string{"extender", "provisioner", "virtualnode"}, []component{
			{v.Scheduler == Second, "second-scheduler"},
			{v.Certificates == ByJob, "mtls"},
			{ptr.Deref(v.VirtualNodes, false), "virtual-node"},
			{network, "network"},
			{services, "services"},
			{ptr.Deref(v.ClusterProfiles, false), "cluster-profiles"},
			{ptr.Deref(v.Monitoring, false), "monitoring"},
			{openShift, "openshift"},
			{ptr.Deref(v.Marker, false), "managed-resources"},
			// Behind those whose policies it replaces, and before cert-manager, which is told of what it makes.
			{v.Admission == Webhook, "webhook"},
			{v.Certificates == ByCertManager, "mtls-cert-manager"},
		}
	}
	k.Resources = []string{at(base)}
	for _, component := range components {
		if component.wanted {
			k.Components = append(k.Components, at("components/"+component.folder))
		}
	}
	if network {
		programs = append(programs, "network")
	}
	for _, program := range programs {
		k.Images = append(k.Images, types.Image{Name: "lodestone-" + program, NewName: v.Registry + "/lodestone-" + program, NewTag: v.Tag})
	}
	if v.KubeScheduler != "" {
		k.Images = append(k.Images, types.Image{Name: "registry.k8s.io/kube-scheduler", NewName: v.KubeSchedulerImage, NewTag: v.KubeScheduler})
	}
	patches, err := patchesOf(v, remote)
	k.Patches = patches
	return k, err
}

// patchesOf returns what images and components cannot say.
func patchesOf(v Values, remote bool) (patches []types.Patch, err error) {
	add := func(kind, name string, patch any) {
		content, unwritten := yaml.Marshal(patch)
		if err == nil {
			err = unwritten
		}
		patches = append(patches, types.Patch{Patch: string(content), Target: &types.Selector{
			ResId: resid.ResId{Gvk: resid.Gvk{Kind: kind}, Name: name},
		}})
	}
	if !remote {
		// The mover is the image of no pod here: the provisioner makes its pods.
		add("Deployment", "lodestone-provisioner", containerPatch("Deployment", "lodestone-provisioner", map[string]any{
			"name": "provisioner", "env": []any{map[string]any{"name": "MOVER_IMAGE", "value": v.Registry + "/lodestone-mover:" + v.Tag}},
		}))
	}
	for _, kind := range []struct{ name, pod string }{
		{"Deployment", "/spec/template/spec"}, {"DaemonSet", "/spec/template/spec"}, {"Job", "/spec/template/spec"},
		{"CronJob", "/spec/jobTemplate/spec/template/spec"},
	} {
		var operations []map[string]any
		operation := func(path string, value any) {
			operations = append(operations, map[string]any{"op": "add", "path": path, "value": value})
		}
		if v.PullSecret != "" {
			operation(kind.pod+"/imagePullSecrets", []any{map[string]any{"name": v.PullSecret}})
		}
		if len(v.NodeSelector) > 0 && kind.name != "DaemonSet" { // what each node needs is on each
			operation(kind.pod+"/nodeSelector", v.NodeSelector)
		}
		if v.Replicas != nil && kind.name == "Deployment" {
			operation("/spec/replicas", *v.Replicas)
		}
		if len(operations) > 0 {
			add(kind.name, "", operations)
		}
	}
	for _, name := range names {
		if resources, given := v.Resources[name]; given {
			kind, workload, container := v.containerOf(name)
			add(kind, workload, containerPatch(kind, workload, map[string]any{"name": container, "resources": only(resources)}))
		}
	}
	return patches, err
}

// containerOf returns in which Deployment or DaemonSet, and in which container of it, a program runs.
func (v Values) containerOf(program string) (kind, workload, container string) {
	switch {
	case program == "scheduler":
		return "Deployment", "lodestone-scheduler", "kube-scheduler"
	case program == "extender" && v.Scheduler == Second:
		return "Deployment", "lodestone-scheduler", "extender"
	case program == "remote-agent":
		return "Deployment", "lodestone-remote-agent", "agent"
	case program == "network":
		return "DaemonSet", "lodestone-network", "network"
	}
	return "Deployment", "lodestone-" + program, program
}

// ProgramOf returns which of the programs that can be given resources runs in a container of a Deployment or DaemonSet; false if none does.
func ProgramOf(kind, workload, container string) (program string, ok bool) {
	for _, v := range []Values{{Scheduler: Extender}, {Scheduler: Second}} {
		for _, name := range names {
			if k, w, c := v.containerOf(name); k == kind && w == workload && c == container {
				return name, true
			}
		}
	}
	return "", false
}

func containerPatch(kind, workload string, container map[string]any) any {
	return map[string]any{
		"apiVersion": "apps/v1", "kind": kind, "metadata": map[string]any{"name": workload},
		"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"containers": []any{container}}}},
	}
}

// only leaves out what is not given.
func only(resources corev1.ResourceRequirements) map[string]any {
	all := map[string]any{}
	if resources.Requests != nil {
		all["requests"] = resources.Requests
	}
	if resources.Limits != nil {
		all["limits"] = resources.Limits
	}
	return all
}

// Build returns the objects that are installed, in an order in which they can be applied.
func Build(v Values, remote bool) ([]*unstructured.Unstructured, error) {
	files := filesys.MakeFsInMemory()
	err := fs.WalkDir(deploy.Files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := fs.ReadFile(deploy.Files, name)
		if err != nil {
			return err
		}
		return files.WriteFile(path.Join("/deploy", name), content)
	})
	if err != nil {
		return nil, fmt.Errorf("read the manifests in the plugin: %w", err)
	}
	kustomization, err := Kustomization(v, remote, func(folder string) string { return "../deploy/" + folder })
	if err != nil {
		return nil, err
	}
	content, err := yaml.Marshal(kustomization)
	if err != nil {
		return nil, fmt.Errorf("write the kustomization: %w", err)
	}
	if err := files.WriteFile("/installation/kustomization.yaml", content); err != nil {
		return nil, fmt.Errorf("write the kustomization: %w", err)
	}
	options := krusty.MakeDefaultOptions()
	options.Reorder = krusty.ReorderOptionLegacy
	built, err := krusty.MakeKustomizer(options).Run(files, "/installation")
	if err != nil {
		return nil, fmt.Errorf("build the manifests in the plugin: %w", err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range built.Resources() {
		content, err := resource.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("read %s of the manifests: %w", resource.CurId(), err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(content); err != nil {
			return nil, fmt.Errorf("read %s of the manifests: %w", resource.CurId(), err)
		}
		objects = append(objects, object)
	}
	return slices.Clip(objects), nil
}
