{{- define "torchyard.name" -}}
{{- printf "%s-torchyard" .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- define "torchyard.labels" -}}
app.kubernetes.io/name: torchyard
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "torchyard.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  # Later mounts leave the home closed to others, which the server insists on.
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile:
    type: RuntimeDefault
{{- end -}}

{{- define "torchyard.container" -}}
image: {{ required "`image` is empty: name the image that you built" .Values.image | quote }}
imagePullPolicy: {{ .Values.imagePullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  capabilities:
    drop: [ALL]
{{- end -}}

{{- define "torchyard.databaseSecret" -}}
{{- if .Values.database.existingSecret -}}
{{- .Values.database.existingSecret -}}
{{- else if .Values.database.url -}}
{{- include "torchyard.name" . }}-database
{{- end -}}
{{- end -}}

{{- define "torchyard.nodesSecret" -}}
{{- .Values.nodes.existingSecret | default (printf "%s-nodes" (include "torchyard.name" .)) -}}
{{- end -}}

{{- define "torchyard.claim" -}}
metadata:
  name: home
spec:
  accessModes: [ReadWriteOnce]
  {{- with .storageClassName }}
  storageClassName: {{ . | quote }}
  {{- end }}
  resources:
    requests:
      storage: {{ .storage }}
{{- end -}}
