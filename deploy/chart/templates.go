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
	// optionMark begins an argument that is there only with an option, whose name is between the two.
	optionMark = "option-of-the-chart-"
)

// choice is something that a user of the chart chooses one value of, and that changes which objects there are.
type choice struct {
	// is is the condition of a template, with one %s for a value.
	is     string
	values []string
}

// choices are by role.
var choices = map[string][]choice{
	home: {
		{is: `eq .Values.scheduler "%s"`, values: []string{install.Extender, install.Second}},
		{is: `eq .Values.certificates "%s"`, values: []string{install.ByJob, install.ByCertManager}},
		{is: `eq (include "lodestone.admission" .) "%s"`, values: []string{install.Policies, install.Webhook}},
		{is: `eq .Values.virtualNodes %s`, values: []string{"true", "false"}},
		{is: `eq .Values.marker %s`, values: []string{"true", "false"}},
	},
	remote: {
		{is: `eq .Values.network %s`, values: []string{"true", "false"}},
		{is: `eq .Values.services %s`, values: []string{"true", "false"}},
	},
}

// option is a component of a home cluster that adds the same whatever else is chosen: objects, and arguments of containers. It is no
// choice, since each choice has twice as much built.
type option struct {
	// value is its name in the values of the chart.
	value string
	take  func(*install.Values)
}

var options = []option{
	{"monitoring", func(v *install.Values) { v.Monitoring = ptr.To(true) }},
	{"network", func(v *install.Values) { v.Network = ptr.To(true) }},
	{"services", func(v *install.Values) { v.Services = ptr.To(true) }},
	{"clusterProfiles", func(v *install.Values) { v.ClusterProfiles = ptr.To(true) }},
}

// chosen returns the values of an installation in which a value of each choice is taken.
func chosen(role string, taken []string) install.Values {
	if role == remote {
		return install.Values{Registry: registryMark, Tag: tagMark, Network: ptr.To(taken[0] == "true"), Services: ptr.To(taken[1] == "true")}
	}
	v := install.Values{Registry: registryMark, Tag: tagMark, Scheduler: taken[0], Certificates: taken[1], Admission: taken[2],
		VirtualNodes: ptr.To(taken[3] == "true"),
		Marker:       ptr.To(taken[4] == "true" && taken[0] == install.Extender)} // the schema refuses it beside the second scheduler
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
	for _, c := range choices[role] {
		var more [][]string
		for _, taken := range all {
			for _, value := range c.values {
				more = append(more, append(slices.Clip(taken), value))
			}
		}
		all = more
	}
	added := map[string]string{}
	if role == home {
		var err error
		if added, err = additions(chosen(home, all[0])); err != nil {
			return "", err
		}
	}
	var order []string
	built := map[string][]variant{}
	same := map[string]int{} // where what was built with values is, for some choices mean nothing beside others
	for i, taken := range all {
		v := chosen(role, taken)
		if role == home {
			for _, o := range options {
				o.take(&v)
			}
		}
		key, err := json.Marshal(v)
		if err != nil {
			return "", fmt.Errorf("write values: %w", err)
		}
		if before, ok := same[string(key)]; ok {
			for id := range built {
				built[id][i].text = built[id][before].text
			}
			continue
		}
		same[string(key)] = i
		objects, err := install.Build(v, role == remote)
		if err != nil {
			return "", err
		}
		for _, object := range objects {
			id := idOf(object)
			if built[id] == nil {
				order = append(order, id)
				built[id] = make([]variant, len(all))
			}
			markAdded(object, added)
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
		text := conditional(choices[role], built[id])
		if option, ok := added[id]; ok {
			text = fmt.Sprintf("{{- if .Values.%s }}\n%s{{- end }}\n", option, text)
		}
		out.WriteString(text)
	}
	out.WriteString("{{- end }}\n")
	return out.String(), nil
}

func idOf(object *unstructured.Unstructured) string {
	return strings.Join([]string{object.GetAPIVersion(), object.GetKind(), object.GetNamespace(), object.GetName()}, "/")
}

// additions returns which objects, and which arguments of containers, an option adds to an installation, with the name of the option.
func additions(v install.Values) (map[string]string, error) {
	plain, err := parts(v)
	if err != nil {
		return nil, err
	}
	added := map[string]string{}
	for _, o := range options {
		with := v
		o.take(&with)
		more, err := parts(with)
		if err != nil {
			return nil, err
		}
		for part := range more {
			if !plain[part] {
				added[part] = o.value
			}
		}
	}
	return added, nil
}

// parts are the ids of the objects of an installation, and the arguments of their containers behind these.
func parts(v install.Values) (map[string]bool, error) {
	objects, err := install.Build(v, false)
	if err != nil {
		return nil, err
	}
	all := map[string]bool{}
	for _, object := range objects {
		all[idOf(object)] = true
		eachArgument(object, func(argument string) string {
			all[idOf(object)+" "+argument] = true
			return argument
		})
	}
	return all, nil
}

// markAdded marks the arguments that options have added to an object.
func markAdded(object *unstructured.Unstructured, added map[string]string) {
	eachArgument(object, func(argument string) string {
		if option, ok := added[idOf(object)+" "+argument]; ok && added[idOf(object)] == "" {
			return optionMark + option + " " + argument
		}
		return argument
	})
}

// eachArgument puts what change returns in the place of each argument of the containers of an object.
func eachArgument(object *unstructured.Unstructured, change func(argument string) string) {
	pod := podOf(object)
	if pod == nil {
		return
	}
	for _, entry := range pod["containers"].([]any) {
		arguments, _ := entry.(map[string]any)["args"].([]any)
		for i, argument := range arguments {
			arguments[i] = change(argument.(string))
		}
	}
}

// podOf returns the spec of the pods that an object makes; nil if it makes none.
func podOf(object *unstructured.Unstructured) map[string]any {
	path := map[string][]string{
		"Deployment": {"spec", "template", "spec"}, "DaemonSet": {"spec", "template", "spec"}, "Job": {"spec", "template", "spec"},
		"CronJob": {"spec", "jobTemplate", "spec", "template", "spec"},
	}[object.GetKind()]
	if path == nil {
		return nil
	}
	pod := object.Object
	for _, key := range path {
		pod = pod[key].(map[string]any)
	}
	return pod
}

// conditional returns the text of an object under the conditions under which it is that; choices are those that are left.
func conditional(choices []choice, variants []variant) string {
	if !slices.ContainsFunc(variants, func(v variant) bool { return v.text != variants[0].text }) {
		if variants[0].text == "" {
			return ""
		}
		return "---\n" + variants[0].text
	}
	var branches []string
	for _, value := range choices[0].values {
		var these []variant
		for _, v := range variants {
			if v.taken[len(v.taken)-len(choices)] == value {
				these = append(these, v)
			}
		}
		branches = append(branches, conditional(choices[1:], these))
	}
	if !slices.ContainsFunc(branches, func(b string) bool { return b != branches[0] }) {
		return branches[0]
	}
	var out strings.Builder
	for k, value := range choices[0].values {
		if branches[k] != "" {
			fmt.Fprintf(&out, "{{- if "+choices[0].is+" }}\n%s{{- end }}\n", value, branches[k])
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
	if pod := podOf(object); pod != nil {
		field(pod, "imagePullSecrets", optional(".Values.pullSecret", `imagePullSecrets: [{"name": {{ quote . }}}]`, ""))
		selector, err := json.Marshal(pod["nodeSelector"])
		if err != nil {
			return "", err
		}
		otherwise := ""
		if pod["nodeSelector"] != nil {
			otherwise = "nodeSelector: " + string(selector)
		}
		if object.GetKind() != "DaemonSet" { // what each node needs is on each
			field(pod, "nodeSelector", optional(".Values.nodeSelector", `nodeSelector: {{ toJson . }}`, otherwise))
		}
		if object.GetKind() == "Deployment" {
			field(object.Object["spec"].(map[string]any), "replicas", "replicas: {{ .Values.replicas }}")
		}
		if err := resourcesOf(object, pod, field); err != nil {
			return "", err
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
	text = optionLine.ReplaceAllString(text, "$1{{- if .Values.$2 }}\n$1- $3\n$1{{- end }}")
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

// optionLine is an argument that is there only with an option: its indentation, the option, and the argument.
var optionLine = regexp.MustCompile(`(?m)^( *)- ` + optionMark + `([A-Za-z]+) (.*)$`)

// optional returns the template of a line that is there with a value, or else another one or none.
func optional(value, line, otherwise string) string {
	text := "{{- with " + value + " }}\n" + line + "\n"
	if otherwise != "" {
		text += "{{- else }}\n" + otherwise + "\n"
	}
	return text + "{{- end }}"
}

// resourcesOf lets values change what containers of a Deployment or a DaemonSet request.
func resourcesOf(object *unstructured.Unstructured, pod map[string]any, field func(into map[string]any, key, template string)) error {
	for _, entry := range pod["containers"].([]any) {
		container := entry.(map[string]any)
		program, ok := install.ProgramOf(object.GetKind(), object.GetName(), container["name"].(string))
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
