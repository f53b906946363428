package main

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/install"
)

const home, remote = "home", "remote"

// What stands in built manifests for what a template fills in.
const (
	registryMark      = "registry.invalid/of-the-chart"
	tagMark           = "tag-of-the-chart"
	kubeSchedulerMark = "kube-scheduler-of-the-chart"
	schedulerImage    = "scheduler-image.invalid/of-the-chart"
	// fieldMark begins a value in the stead of which a template stands, with its number.
	fieldMark = "field-of-the-chart-"
)

// choice is something that a user of the chart chooses one value of, and that changes which objects there are.
type choice struct {
	// is is the condition of a template, with one %s for a value.
	is     string
	values []string
}

// choices are those of a home cluster; a remote cluster has none.
var choices = []choice{
	{is: `eq .Values.scheduler "%s"`, values: []string{install.Extender, install.Second}},
	{is: `eq .Values.certificates "%s"`, values: []string{install.ByJob, install.ByCertManager}},
	{is: `eq (include "lodestone.admission" .) "%s"`, values: []string{install.Policies, install.Webhook}},
	{is: `eq .Values.virtualNodes %s`, values: []string{"true", "false"}},
	{is: `eq .Values.monitoring %s`, values: []string{"true", "false"}},
	{is: `eq .Values.marker %s`, values: []string{"true", "false"}},
}

// chosen returns the values of an installation in which a value of each choice is taken.
func chosen(taken []string) install.Values {
	v := install.Values{Registry: registryMark, Tag: tagMark, Scheduler: taken[0], Certificates: taken[1], Admission: taken[2],
		VirtualNodes: ptr.To(taken[3] == "true"), Monitoring: ptr.To(taken[4] == "true"),
		Marker: ptr.To(taken[5] == "true" && taken[0] == install.Extender)} // the schema refuses it beside the second scheduler
	if v.Scheduler == install.Second {
		v.KubeScheduler, v.KubeSchedulerImage = kubeSchedulerMark, schedulerImage
		if v.Admission == install.Policies {
			v.Certificates = "" // it asks the extender of its own pod
		}
	}
	return v
}

// variant is an object as it is built with some values of choices; text is empty where it is not built.
type variant struct {
	taken []string
	text  string
}

// templates returns the templates of a role: of each object one, in the order in which they are built.
func templates(role string) (string, error) {
	all := [][]string{{}}
	if role == home {
		for _, c := range choices {
			var more [][]string
			for _, taken := range all {
				for _, value := range c.values {
					more = append(more, append(slices.Clip(taken), value))
				}
			}
			all = more
		}
	}
	var order []string
	built := map[string][]variant{}
	for i, taken := range all {
		v := install.Values{Registry: registryMark, Tag: tagMark}
		if role == home {
			v = chosen(taken)
		}
		objects, err := install.Build(v, role == remote)
		if err != nil {
			return "", err
		}
		for _, object := range objects {
			id := strings.Join([]string{object.GetAPIVersion(), object.GetKind(), object.GetNamespace(), object.GetName()}, "/")
			if built[id] == nil {
				order = append(order, id)
				built[id] = make([]variant, len(all))
			}
			if built[id][i].text, err = template(object); err != nil {
				return "", err
			}
		}
	}
	var out strings.Builder
	fmt.Fprintf(&out, "{{- if eq .Values.role %q }}\n", role)
	for _, id := range order {
		for i, taken := range all {
			built[id][i].taken = taken
		}
		out.WriteString(conditional(built[id], 0))
	}
	out.WriteString("{{- end }}\n")
	return out.String(), nil
}

// conditional returns the text of an object under the conditions under which it is that, from choice i on.
func conditional(variants []variant, i int) string {
	if !slices.ContainsFunc(variants, func(v variant) bool { return v.text != variants[0].text }) {
		if variants[0].text == "" {
			return ""
		}
		return "---\n" + variants[0].text
	}
	var branches []string
	for _, value := range choices[i].values {
		var these []variant
		for _, v := range variants {
			if v.taken[i] == value {
				these = append(these, v)
			}
		}
		branches = append(branches, conditional(these, i+1))
	}
	if !slices.ContainsFunc(branches, func(b string) bool { return b != branches[0] }) {
		return branches[0]
	}
	var out strings.Builder
	for k, value := range choices[i].values {
		if branches[k] != "" {
			fmt.Fprintf(&out, "{{- if "+choices[i].is+" }}\n%s{{- end }}\n", value, branches[k])
		}
	}
	return out.String()
}

// kept are the kinds of which helm uninstall leaves the objects, for they hold those of users.
var kept = []string{"Namespace", "CustomResourceDefinition", "StorageClass"}

// template returns an object as YAML in which templates stand where values of the chart go.
func template(object *unstructured.Unstructured) (string, error) {
	object = object.DeepCopy()
	if slices.Contains(kept, object.GetKind()) {
		annotations := object.GetAnnotations()
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations["helm.sh/resource-policy"] = "keep"
		object.SetAnnotations(annotations)
	}
	var fields []string // what goes in the stead of lines
	field := func(into map[string]any, key, template string) {
		into[key] = fmt.Sprintf("%s%d", fieldMark, len(fields))
		fields = append(fields, template)
	}
	path := map[string][]string{
		"Deployment": {"spec", "template", "spec"}, "Job": {"spec", "template", "spec"},
		"CronJob": {"spec", "jobTemplate", "spec", "template", "spec"},
	}[object.GetKind()]
	if path != nil {
		pod := object.Object
		for _, key := range path {
			pod = pod[key].(map[string]any)
		}
		field(pod, "imagePullSecrets", optional(".Values.pullSecret", `imagePullSecrets: [{"name": {{ quote . }}}]`, ""))
		selector, err := json.Marshal(pod["nodeSelector"])
		if err != nil {
			return "", err
		}
		otherwise := ""
		if pod["nodeSelector"] != nil {
			otherwise = "nodeSelector: " + string(selector)
		}
		field(pod, "nodeSelector", optional(".Values.nodeSelector", `nodeSelector: {{ toJson . }}`, otherwise))
		if object.GetKind() == "Deployment" {
			field(object.Object["spec"].(map[string]any), "replicas", "replicas: {{ .Values.replicas }}")
			if err := resourcesOf(object, pod, field); err != nil {
				return "", err
			}
		}
		if object.GetKind() == "Job" {
			// The pods of a Job cannot be changed: each upgrade has its own.
			object.SetName(object.GetName() + "-revision-of-the-chart")
		}
	}
	content, err := yaml.Marshal(object.Object)
	if err != nil {
		return "", fmt.Errorf("write %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	text := strings.ReplaceAll(string(content), "{{", `{{ "{{" }}`)
	text = strings.NewReplacer(registryMark, "{{ .Values.registry }}", tagMark, `{{ include "lodestone.tag" . }}`,
		schedulerImage, "{{ .Values.kubeSchedulerImage }}", kubeSchedulerMark, `{{ include "lodestone.kubeScheduler" . }}`,
		"-revision-of-the-chart", "-{{ .Release.Revision }}").Replace(text)
	return fieldLine.ReplaceAllStringFunc(text, func(line string) string {
		parts := fieldLine.FindStringSubmatch(line)
		var number int
		if _, err := fmt.Sscan(parts[2], &number); err != nil {
			return line
		}
		return parts[1] + strings.ReplaceAll(fields[number], "\n", "\n"+parts[1])
	}), nil
}

// fieldLine is a line the value of which a template takes the place of: its indentation, and the number.
var fieldLine = regexp.MustCompile(`(?m)^( *)[A-Za-z]+: ` + fieldMark + `(\d+)$`)

// optional returns the template of a line that is there with a value, or else another one or none.
func optional(value, line, otherwise string) string {
	text := "{{- with " + value + " }}\n" + line + "\n"
	if otherwise != "" {
		text += "{{- else }}\n" + otherwise + "\n"
	}
	return text + "{{- end }}"
}

// resourcesOf lets values change what containers of a Deployment request.
func resourcesOf(object *unstructured.Unstructured, pod map[string]any, field func(into map[string]any, key, template string)) error {
	for _, entry := range pod["containers"].([]any) {
		container := entry.(map[string]any)
		program, ok := install.ProgramOf(object.GetName(), container["name"].(string))
		if !ok {
			continue
		}
		base, err := json.Marshal(container["resources"])
		if err != nil {
			return err
		}
		const line = "resources: {{ mergeOverwrite (fromJson %q) (index .Values.resources %q | default dict) | toJson }}"
		field(container, "resources", fmt.Sprintf(line, base, program))
	}
	return nil
}
