package redfishsim

import (
	"crypto/rand"
	"crypto/subtle"
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

const (
	defaultSessionLimit   = 8
	defaultSessionTimeout = 30 * time.Minute
	sessionsPath          = "/redfish/v1/SessionService/Sessions"
)

type session struct {
	id   string
	used time.Time
}

// OpenSessions counts the sessions that hold a slot.
func (b *BMC) OpenSessions() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.expireSessions()
	return len(b.sessions)
}

// SessionsOpened counts the sessions that were ever opened.
func (b *BMC) SessionsOpened() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.opened
}

// FillSessions takes slots, as other clients do, until so many are open.
func (b *BMC) FillSessions(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.sessions) < n {
		b.openSession()
	}
}

// DropSessions forgets all sessions, as a restart of the BMC does.
func (b *BMC) DropSessions() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.sessions)
}

func (b *BMC) openSession() (token string, s *session) {
	token, s = rand.Text(), &session{id: rand.Text(), used: time.Now()}
	b.sessions[token] = s
	b.opened++
	return token, s
}

func (b *BMC) expireSessions() {
	limit := b.mode.SessionTimeout
	if limit == 0 {
		limit = defaultSessionTimeout
	}
	for token, s := range b.sessions {
		if time.Since(s.used) > limit {
			delete(b.sessions, token)
		}
	}
}

// allowed authenticates a request, and answers it itself if it may not go on.
func (b *BMC) allowed(w http.ResponseWriter, r *http.Request) bool {
	m := b.behaviour()
	if token := r.Header.Get("X-Auth-Token"); token != "" {
		b.mu.Lock()
		b.expireSessions()
		s, ok := b.sessions[token]
		if ok {
			s.used = time.Now()
		}
		b.mu.Unlock()
		if !ok {
			refuse(w, http.StatusUnauthorized, "Base.1.8.NoValidSession")
			return false
		}
	} else if user, pw, ok := r.BasicAuth(); !ok || m.NoBasic || !b.credentials(user, pw) {
		refuse(w, http.StatusUnauthorized, "Base.1.8.NoValidSession")
		return false
	}
	if m.MustChangePassword && r.Method != http.MethodDelete { // a session may still be ended
		refuse(w, http.StatusForbidden, "Base.1.8.PasswordChangeRequired")
		return false
	}
	return true
}

func (b *BMC) credentials(user, password string) bool {
	u := subtle.ConstantTimeCompare([]byte(user), []byte(b.config.Username))
	p := subtle.ConstantTimeCompare([]byte(password), []byte(b.config.Password))
	return u&p == 1
}

// logIn serves POST on the sessions.
func (b *BMC) logIn(w http.ResponseWriter, r *http.Request) {
	var body struct{ UserName, Password string }
	if json.NewDecoder(r.Body).Decode(&body) != nil {
		refuse(w, http.StatusBadRequest, "Base.1.8.MalformedJSON")
		return
	}
	if user, pw, ok := r.BasicAuth(); b.behaviour().LoginByBasic && (!ok || !b.credentials(user, pw)) {
		refuse(w, http.StatusUnauthorized, "Base.1.8.NoValidSession")
		return
	}
	if !b.credentials(body.UserName, body.Password) {
		refuse(w, http.StatusUnauthorized, "Base.1.8.ResourceAtUriUnauthorized")
		return
	}
	b.mu.Lock()
	m := b.mode
	b.expireSessions()
	limit := m.SessionLimit
	if limit == 0 {
		limit = defaultSessionLimit
	}
	if len(b.sessions) >= limit {
		b.mu.Unlock()
		status := m.LimitAnswer
		if status == 0 {
			status = http.StatusServiceUnavailable
		}
		refuse(w, status, "Base.1.8.SessionLimitExceeded")
		return
	}
	token, s := b.openSession()
	b.mu.Unlock()

	w.Header().Set("X-Auth-Token", token)
	answerNew(w, http.StatusCreated, sessionsPath+"/"+s.id, m.Location, b.sessionDocument(s))
}

// answerNew answers with something that was made, named as location says.
func answerNew(w http.ResponseWriter, status int, uri string, location Location, doc map[string]any) {
	if location != NoneAtAll {
		doc["@odata.id"] = uri
	}
	switch location {
	case Relative:
		w.Header().Set("Location", uri)
	case Absolute:
		w.Header().Set("Location", "https://bmc-name.invalid"+uri)
	}
	answer(w, status, doc)
}

func (b *BMC) sessionDocument(s *session) map[string]any {
	doc := map[string]any{"@odata.type": "#Session.v1_7_0.Session", "Id": s.id, "Name": "Session", "UserName": b.config.Username}
	if m := b.behaviour(); !m.HideRoles {
		doc["Roles"] = []string{m.role()}
	}
	return doc
}

// serveSession shows a session.
func (b *BMC) serveSession(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	var found *session
	for _, s := range b.sessions {
		if sessionsPath+"/"+s.id == r.URL.Path {
			found = s
		}
	}
	b.mu.Unlock()
	if found == nil {
		refuse(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI")
		return
	}
	doc := b.sessionDocument(found)
	doc["@odata.id"] = r.URL.Path
	answer(w, http.StatusOK, doc)
}

// logOut serves DELETE on a session.
func (b *BMC) logOut(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(r.URL.Path, sessionsPath+"/")
	b.mu.Lock()
	defer b.mu.Unlock()
	for token, s := range b.sessions {
		if s.id == id {
			delete(b.sessions, token)
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
	refuse(w, http.StatusNotFound, "Base.1.8.ResourceMissingAtURI")
}
