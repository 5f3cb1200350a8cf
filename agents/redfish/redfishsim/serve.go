package redfishsim

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	rootPath    = "/redfish/v1"
	systemsPath = rootPath + "/Systems"
	chassisPath = rootPath + "/Chassis"
	tasksPath   = rootPath + "/TaskService/Tasks"
)

// serve notes a request, lets it run into the fault set for its place, and answers it.
func (b *BMC) serve(w http.ResponseWriter, r *http.Request) {
	if !b.begin() {
		return
	}
	defer b.working.Done()
	where := b.place(r)
	note := Request{At: time.Now(), Method: r.Method, Path: r.URL.Path}
	if r.Header.Get("X-Auth-Token") != "" {
		note.Auth = "token"
	} else if _, _, ok := r.BasicAuth(); ok {
		note.Auth = "basic"
	}
	// The body is read first: only then does net/http notice a client that goes away. A
	// broken one is refused as such later.
	body, _ := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<16))
	r.Body = io.NopCloser(bytes.NewReader(body))
	if where == AtReset && r.Method == http.MethodPost {
		note.Body = string(body)
	}
	b.mu.Lock()
	f, ok := b.faults[where]
	if !ok {
		f = b.faults[Anywhere]
	}
	index := len(b.requests)
	b.requests = append(b.requests, note)
	m := b.mode
	b.mu.Unlock()

	if m.HTTP10 {
		old := &oldResponse{header: http.Header{}}
		defer old.send(w)
		w = old
	}
	if m.CloseEach {
		w.Header().Set("Connection", "close")
	}
	if m.Clock != 0 {
		w.Header().Set("Date", time.Now().Add(m.Clock).UTC().Format(http.TimeFormat))
	}
	w.Header().Set("OData-Version", "4.0")
	rec := &recorder{ResponseWriter: w}
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.requests[index].Status = rec.status
	}()
	if f != nil {
		f(rec, r, http.HandlerFunc(b.route))
		return
	}
	b.route(rec, r)
}

type recorder struct {
	http.ResponseWriter
	status int
}

func (r *recorder) WriteHeader(status int) { r.status = status; r.ResponseWriter.WriteHeader(status) }

// Unwrap lets http.ResponseController reach the connection.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// route serves a request as a well-behaved BMC does, apart from its Mode.
func (b *BMC) route(w http.ResponseWriter, r *http.Request) {
	switch b.place(r) {
	case AtRoot:
		if doc := b.static[rootPath]; doc != nil {
			answer(w, http.StatusOK, doc)
			return
		}
		answer(w, http.StatusOK, b.rootDocument())
		return
	case AtSessions:
		if r.Method == http.MethodPost {
			b.logIn(w, r)
			return
		}
	}
	if !b.allowed(w, r) {
		return
	}
	switch where, s := b.find(r); {
	case where == AtSessions && r.Method == http.MethodDelete:
		b.logOut(w, r)
	case where == AtSessions:
		b.serveSession(w, r)
	case where == AtAccounts:
		b.serveAccounts(w, r)
	case b.static[path(r)] != nil:
		answer(w, http.StatusOK, b.static[path(r)])
	case where == AtSystems:
		b.serveMembers(w, r)
	case where == AtSystem:
		doc := b.systemDocument(s)
		if tag, ok := doc["@odata.etag"].(string); ok {
			w.Header().Set("ETag", tag)
		}
		answer(w, http.StatusOK, doc)
	case where == AtActionInfo:
		answer(w, http.StatusOK, s.actionInfoDocument())
	case where == AtReset && r.Method == http.MethodPost:
		b.reset(w, r, s)
	case where == AtTask:
		b.serveTask(w, r)
	default:
		refuse(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI")
	}
}

// path is a request's, without the slash that some clients put at the end.
func path(r *http.Request) string { return strings.TrimSuffix(r.URL.Path, "/") }

func (b *BMC) place(r *http.Request) Where { where, _ := b.find(r); return where }

// find says which place a path names, and of which system.
func (b *BMC) find(r *http.Request) (Where, *system) {
	path := path(r)
	switch {
	case path == rootPath:
		return AtRoot, nil
	case path == sessionsPath, strings.HasPrefix(path, sessionsPath+"/"):
		return AtSessions, nil
	case path == systemsPath, path == chassisPath:
		return AtSystems, nil
	case path == accountsPath, strings.HasPrefix(path, accountsPath+"/"):
		return AtAccounts, nil
	case strings.HasPrefix(path, tasksPath+"/"):
		return AtTask, nil
	}
	for _, s := range b.systems {
		switch path {
		case s.uri():
			return AtSystem, s
		case s.uri() + "/ResetActionInfo":
			if s.ActionInfo != nil || b.static[path] != nil {
				return AtActionInfo, s
			}
		case s.Target:
			if !s.NotHost {
				return AtReset, s
			}
		}
	}
	return Nowhere, nil
}

// serveMembers answers one page of the collection.
func (b *BMC) serveMembers(w http.ResponseWriter, r *http.Request) {
	m := b.behaviour()
	members := []map[string]string{}
	for _, s := range b.systems {
		if s.Chassis == (path(r) == chassisPath) {
			members = append(members, map[string]string{"@odata.id": s.uri()})
		}
	}
	doc := map[string]any{
		"@odata.id": path(r), "@odata.type": "#ComputerSystemCollection.ComputerSystemCollection",
		"Name": "Computer System Collection", "Members@odata.count": len(members),
	}
	if path(r) == chassisPath {
		doc["@odata.type"], doc["Name"] = "#ChassisCollection.ChassisCollection", "Chassis Collection"
	}
	if skip, _ := strconv.Atoi(r.URL.Query().Get("$skip")); m.PageSize > 0 && skip >= 0 && skip < len(members) {
		end := min(skip+m.PageSize, len(members))
		if end < len(members) {
			doc["Members@odata.nextLink"] = path(r) + "?$skip=" + strconv.Itoa(end)
		}
		members = members[skip:end]
	}
	if m.Shuffle {
		rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	}
	doc["Members"] = members
	answer(w, http.StatusOK, doc)
}

// serveTask shows a task running, then completed, then gone.
func (b *BMC) serveTask(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	reads, ok := b.tasks[r.URL.Path]
	b.tasks[r.URL.Path] = reads + 1
	b.mu.Unlock()
	if !ok || reads > 1 {
		refuse(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI")
		return
	}
	state := []string{"Running", "Completed"}[reads]
	answer(w, http.StatusOK, map[string]any{
		"@odata.id": r.URL.Path, "@odata.type": "#Task.v1_4_0.Task", "Id": "1", "Name": "Reset", "TaskState": state,
	})
}

func answer(w http.ResponseWriter, status int, doc any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(doc) // a client that is gone is its own affair
}

// refuse answers with an error document (DSP0266, "Error responses").
func refuse(w http.ResponseWriter, status int, messageID string) {
	answer(w, status, map[string]any{"error": map[string]any{
		"code": messageID, "message": "See the extended information.",
		"@Message.ExtendedInfo": []map[string]any{{"MessageId": messageID, "Message": "Refused.", "Severity": "Critical"}},
	}})
}
